"""Prefixes that an operator wants resident."""

import re
from dataclasses import dataclass

from headway.core.errors import InvalidArgumentError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A pinned prefix, as Redis keeps it.

    Attributes:
        name: unique in the stack.
        created_at_s: since 1970.
    """

    name: str
    model: str
    token_ids: tuple[int, ...]
    created_at_s: float


def check_prefix(prefix: Prefix) -> None:
    """Raises InvalidArgumentError naming what is wrong."""
    if _NAME.fullmatch(prefix.name) is None:
        raise InvalidArgumentError(
            f"'{prefix.name[:100]}' is no name for a prefix.",
            hint="Use up to 64 letters, digits and ._- .",
            field="name",
        )
    if not prefix.token_ids:
        raise InvalidArgumentError("The prefix is empty.", hint="Give at least one block of tokens.", field="token_ids")
