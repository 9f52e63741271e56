"""Fields of a request that have no effect: the client hears of them in a header, or its request is refused."""

import difflib
import re
from collections.abc import Collection

from headway.core.errors import InvalidArgumentError

_HEADER = b"x-headway-ignored"
_MAX_FIELDS = 16
_MAX_NAME_CHARS = 64
# What a header may hold, and a list of names with it.
_UNSAFE = re.compile(r"[^\w.\[\]:-]", re.ASCII)


class IgnoredFields:
    """Collects the fields of one request that have no effect. It keeps few and short ones, whatever a client sends.

    Args:
        is_strict: whether such a request is refused instead.
    """

    def __init__(self, *, is_strict: bool) -> None:
        self._is_strict = is_strict
        self._names: list[str] = []

    @property
    def is_full(self) -> bool:
        """Whether more will not be told."""
        return len(self._names) > _MAX_FIELDS

    def add(self, name: str, *, known: Collection[str] = (), why: str = "") -> None:
        """Notes a field by its path.

        Args:
            known: names that may have been meant.
            why: it has no effect; empty for a field that nobody knows.

        Raises:
            InvalidArgumentError: the request is read strictly.
        """
        name = name[:_MAX_NAME_CHARS]
        if self._is_strict:
            raise InvalidArgumentError(why or f"Unknown field '{name}'.", hint=_hint(name, known), field=name)
        if not self.is_full:
            self._names.append(_UNSAFE.sub("?", name))

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """One of the answer, with the names separated by commas; none where there are none."""
        names = [*self._names[:_MAX_FIELDS], "..."] if self.is_full else self._names
        return [(_HEADER, ", ".join(names).encode())] if names else []


def _hint(name: str, known: Collection[str]) -> str:
    if near := difflib.get_close_matches(name, known, n=3):
        return f"Did you mean {' or '.join(near)}?"
    return f"Known fields: {', '.join(sorted(known))}." if known else "Leave it out."
