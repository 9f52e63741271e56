"""Fields that the checks which endpoints share know by another name than the client."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from headway.core.errors import InvalidArgumentError

# In a text of ours it is a plain word.
_WORD = "messages"


@contextmanager
def told_as(names: Mapping[str, str]) -> Iterator[None]:
    """Faults within name the field as the client does, in their words too.

    Args:
        names: the client's, by those that the checks use.
    """
    try:
        yield
    except InvalidArgumentError as error:
        field = error.field
        error.field = names.get(field, field)
        if field in names and field != _WORD:
            error.message = re.sub(rf"\b{field}\b", error.field, error.message)
            error.hint = re.sub(rf"\b{field}\b", error.field, error.hint)
        raise
