"""One tool call within a model's output, read as its text comes."""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

# What stands before the arguments, in the order in which nearly every model writes it.
_HEADER = re.compile(
    r'\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*'
    r'"(?:arguments|parameters)"\s*:\s*(?=\{)'
)

_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class CallDelta:
    """New output of one tool call.

    Attributes:
        index: the call's index in its message.
        name: the tool's name, on the call's first delta; else empty.
        arguments: the next piece of a JSON text.
    """

    index: int
    name: str = ""
    arguments: str = ""


class Scanner(Protocol):
    """Reads one call, or several in a row, from behind the tag that announces them.

    Whatever it decides depends on the text and not on how that is cut.
    """

    @property
    def num_calls(self) -> int:
        """The calls of which at least the name has gone out."""

    @property
    def is_complete(self) -> bool:
        """What it reads has ended, or was no call."""

    @property
    def words(self) -> str:
        """The text so far that is no part of a call."""

    @property
    def rest(self) -> str:
        """The text behind the end that has not been read."""

    def push(self, text: str) -> list[CallDelta]:
        """Takes new text and returns the deltas that are certain now."""


class JsonNesting:
    """How deep a text of JSON is nested, character by character.

    Attributes:
        depth: of open braces and brackets.
    """

    __slots__ = ("_is_escaped", "_is_quoted", "depth")

    def __init__(self) -> None:
        self.depth = 0
        self._is_quoted = self._is_escaped = False

    def step(self, char: str) -> bool:
        """Takes the next character; returns whether it closes a brace or bracket."""
        if self._is_quoted:
            self._is_quoted = char != '"' or self._is_escaped
            self._is_escaped = char == "\\" and not self._is_escaped
        elif char in "{[":
            self.depth += 1
        elif char == '"':
            self._is_quoted = self.depth > 0
        elif char in "}]":
            self.depth -= 1
            return True
        return False


class CallScanner:
    """Reads `{"name": "...", "arguments": {...}}`, in which the arguments may be called parameters.

    The arguments go out as they come. Where they precede the name, or are no object, they go out at the end; and what
    turns out to be another object, or names no tool that there is, is no call.
    """

    __slots__ = ("_closings", "_end", "_first", "_index", "_names", "_nesting", "_next", "_text", "num_calls")

    def __init__(self, index: int, *, names: Collection[str]) -> None:
        self.num_calls = 0
        self._index = index
        self._names = names
        self._text = ""
        self._end: int | None = None
        self._first = self._next = 0  # character of the arguments; the first that has not gone out
        self._closings: list[int] = []  # where those of the object's values end that are objects or lists
        self._nesting = JsonNesting()

    @property
    def is_complete(self) -> bool:
        return self._end is not None

    @property
    def words(self) -> str:
        return "" if self.num_calls else self._raw

    @property
    def rest(self) -> str:
        return "" if self._end is None else self._text[self._end :]

    @property
    def _raw(self) -> str:
        """The object's text so far."""
        return self._text[: self._end]

    def push(self, text: str) -> list[CallDelta]:
        start = len(self._text)
        self._text += text
        for position in range(start, len(self._text)):
            self._step(self._text[position], position)
            if self.is_complete:
                break
        if self.num_calls:
            return self._take_arguments()
        header = _HEADER.match(self._raw)
        if header is not None and (name := _unquote(header[1])) in self._names:
            self.num_calls = 1
            self._first = self._next = header.end()
            return [CallDelta(self._index, name), *self._take_arguments()]
        return self._take_whole() if self.is_complete else []

    def _step(self, char: str, position: int) -> None:
        nesting = self._nesting
        if nesting.depth == 0 and char not in "{[":
            if not char.isspace():
                self._end = 0
        elif nesting.step(char) and nesting.depth == 1:
            self._closings.append(position + 1)
        elif nesting.depth == 0:
            self._end = position + 1

    def _take_arguments(self) -> list[CallDelta]:
        stop = next((closing for closing in self._closings if closing > self._first), len(self._raw))
        arguments, self._next = self._text[self._next : stop], stop
        return [CallDelta(self._index, arguments=arguments)] if arguments else []

    def _take_whole(self) -> list[CallDelta]:
        """The call that the whole object makes, if it makes one."""
        try:
            document = json.loads(self._raw)
        except (ValueError, RecursionError):
            return []
        name = document.get("name") if isinstance(document, dict) else None
        if not isinstance(name, str) or name not in self._names:
            return []
        self.num_calls = 1
        arguments = document.get("arguments", document.get("parameters"))
        text = _escape_halves(arguments) if isinstance(arguments, str) else json_text(arguments or {})
        return [CallDelta(self._index, name, text or "{}")]


def json_text(value: Any) -> str:
    """A value as JSON that is UTF-8, which has no halves of characters: those are escaped."""
    return _escape_halves(json.dumps(value, ensure_ascii=False))


def _escape_halves(text: str) -> str:
    return _HALF.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _unquote(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        return ""
