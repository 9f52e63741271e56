"""Calls in a list: `[`, calls with commas between them, `]`."""

from collections.abc import Callable
from typing import TypeAlias

from headway.gateway.tools.call import CallDelta, Scanner

MakeScanner: TypeAlias = Callable[[int], Scanner]


class ListScanner:
    """Reads a list, each of its calls with a scanner of its own. The list ends where something is no call.

    Args:
        make_scanner: makes one for the call of an index.
        is_parallel: whether there may be several calls; else the list ends behind its first.
    """

    def __init__(self, index: int, *, make_scanner: MakeScanner, is_parallel: bool) -> None:
        self.is_complete = False
        self._first_index = index
        self._make_scanner = make_scanner
        self._is_parallel = is_parallel
        self._scanner: Scanner | None = None
        self._has_opened = False
        self._num_read = 0  # calls that are over
        self._words = ""  # since the last one
        self._text = ""  # that has not been read

    @property
    def num_calls(self) -> int:
        return self._num_read + (self._scanner.num_calls if self._scanner is not None else 0)

    @property
    def words(self) -> str:
        if self._scanner is None:
            return self._words
        return "" if self._scanner.num_calls else self._words + self._scanner.words

    @property
    def rest(self) -> str:
        return self._text if self.is_complete else ""

    def push(self, text: str) -> list[CallDelta]:
        deltas: list[CallDelta] = []
        self._text += text
        while self._text and not self.is_complete:
            if self._scanner is None:
                self._read_between()
            else:
                deltas += self._read_call(self._scanner)
        return deltas

    def _read_between(self) -> None:
        """Up to the next call, or to the list's end."""
        start = self._text.lstrip()
        self._words += self._text[: len(self._text) - len(start)]
        self._text = start
        if not start:
            return
        if start[0] == ("," if self._has_opened else "["):
            self._has_opened = True
            self._words, self._text = self._words + start[0], start[1:]
            self._scanner = self._make_scanner(self._first_index + self._num_read)
            return
        self.is_complete = True
        if self._has_opened and start[0] == "]":
            self._words, self._text = "", start[1:]

    def _read_call(self, scanner: Scanner) -> list[CallDelta]:
        deltas = scanner.push(self._text)
        self._text = scanner.rest
        if not scanner.is_complete:
            return deltas
        self._words = "" if scanner.num_calls else self._words + scanner.words
        self._num_read += scanner.num_calls
        self._scanner = None
        self.is_complete = not scanner.num_calls or not self._is_parallel
        return deltas
