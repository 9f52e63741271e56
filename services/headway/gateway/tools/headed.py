"""A call whose name stands in front of its arguments, and not within the same object."""

import re
from collections.abc import Collection

from headway.gateway.tools.call import CallDelta, JsonNesting

# Of white space in front of a header, and of what stands between a name and its arguments.
_MAX_EXTRA_CHARS = 128


class HeadedScanner:
    """Reads a header and the JSON object behind it, whose text goes out as it comes.

    What is no such header is not read at all: none of its text is lost.

    Args:
        header: matches all up to the object's brace; the last group that matches is the name.
        openings: what headers of known tools begin with; other text is not held back to see whether it is one.
        names: of the tools that there are.
    """

    def __init__(
        self, index: int, *, header: re.Pattern[str], openings: Collection[str], names: Collection[str]
    ) -> None:
        self.num_calls = 0
        self._index = index
        self._header = header
        self._openings = openings
        self._names = names
        self._text = ""
        self._next = 0  # the first character that has not been looked at
        self._start = 0  # of the arguments
        self._end: int | None = None
        self._nesting = JsonNesting()

    @property
    def is_complete(self) -> bool:
        return self._end is not None

    @property
    def words(self) -> str:
        return "" if self.num_calls or self.is_complete else self._text

    @property
    def rest(self) -> str:
        return "" if self._end is None else self._text[self._end :]

    def push(self, text: str) -> list[CallDelta]:
        self._text += text
        deltas = [] if self.num_calls else self._read_header()
        return [*deltas, *self._read_arguments()] if self.num_calls else []

    def _read_header(self) -> list[CallDelta]:
        for position in range(self._next, len(self._text)):
            if self._text[position] == "{":
                return self._begin(position)
            if not self._may_be_header(self._text[: position + 1]):
                self._end = 0
                return []
        self._next = len(self._text)
        return []

    def _begin(self, position: int) -> list[CallDelta]:
        match = self._header.fullmatch(self._text, 0, position)
        name = "" if match is None else match[match.lastindex or 0]
        if name not in self._names:
            self._end = 0
            return []
        self.num_calls, self._start, self._next = 1, position, position
        return [CallDelta(self._index, name)]

    def _may_be_header(self, text: str) -> bool:
        start = text.lstrip()
        return len(text) - len(start) <= _MAX_EXTRA_CHARS and any(
            opening.startswith(start) or (start.startswith(opening) and len(start) <= len(opening) + _MAX_EXTRA_CHARS)
            for opening in self._openings
        )

    def _read_arguments(self) -> list[CallDelta]:
        first = self._next
        while self._next < len(self._text) and not self._is_closed:
            self._nesting.step(self._text[self._next])
            self._next += 1
        if self._is_closed:
            self._end = self._next
        arguments = self._text[first : self._next]
        return [CallDelta(self._index, arguments=arguments)] if arguments else []

    @property
    def _is_closed(self) -> bool:
        return self._next > self._start and self._nesting.depth == 0
