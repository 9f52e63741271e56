"""Calls as Llama 3.2 and Llama 4 write them where their template asks for it: a list of Python's calls.

[NAME(KEY=VALUE, ...), ...]
"""

from collections.abc import Collection
from typing import ClassVar

from headway.gateway.tools.call import CallDelta, Scanner, json_text
from headway.gateway.tools.listed import ListScanner
from headway.gateway.tools.parser import BareParser
from headway.gateway.tools.python_literal import read_keywords

_OPENING, _CLOSING = "([{", ")]}"


class PythonCallScanner:
    """Reads `NAME(KEY=VALUE, ...)`, which goes out when it is whole. Nothing of it is run."""

    def __init__(self, index: int, *, names: Collection[str]) -> None:
        self.num_calls = 0
        self._index = index
        self._names = names
        self._text = ""
        self._next = 0  # the first character that has not been looked at
        self._end: int | None = None
        self._depth = 0
        self._quote = ""  # that the text has which is being read; empty outside of one
        self._is_escaped = False

    @property
    def is_complete(self) -> bool:
        return self._end is not None

    @property
    def words(self) -> str:
        return "" if self.num_calls else self._text[: self._end]

    @property
    def rest(self) -> str:
        return "" if self._end is None else self._text[self._end :]

    def push(self, text: str) -> list[CallDelta]:
        self._text += text
        while self._next < len(self._text) and self._end is None:
            self._step(self._text[self._next])
            self._next += 1
        return self._take() if self._end else []

    def _step(self, char: str) -> None:
        if self._depth == 0:
            self._step_of_name(char)
        elif self._quote:
            if char == self._quote and not self._is_escaped:
                self._quote = ""
            self._is_escaped = char == "\\" and not self._is_escaped
        elif char in "\"'":
            self._quote = char
        elif char in _OPENING:
            self._depth += 1
        elif char in _CLOSING:
            self._depth -= 1
            if self._depth == 0:
                self._end = self._next + 1

    def _step_of_name(self, char: str) -> None:
        name = self._text[: self._next].strip()
        if char == "(" and name in self._names:
            self._depth = 1
        elif not any(known.startswith((name + char).lstrip()) for known in self._names):
            self._end = 0

    def _take(self) -> list[CallDelta]:
        text = self._text[: self._end]
        name, _, arguments = text.partition("(")
        try:
            keywords = read_keywords("_(" + arguments)  # names of tools need not be Python's
        except ValueError:
            return []
        self.num_calls = 1
        return [CallDelta(self._index, name.strip(), json_text(keywords))]


class PythonicParser(BareParser):
    """A text that is nothing but lists of calls, or has none."""

    OPENING: ClassVar[str] = "["

    def _make_scanner(self, tag: str) -> Scanner:
        del tag
        return ListScanner(
            self.num_calls,
            make_scanner=lambda index: PythonCallScanner(index, names=self._toolbox.names),
            is_parallel=self._toolbox.is_parallel,
        )
