"""One tool call within a model's output, read as its text comes."""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass

# What stands before the arguments, in the order in which nearly every model writes it.
_HEADER = re.compile(
    r'\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*'
    r'"(?:arguments|parameters)"\s*:\s*(?=\{)'
)


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


class CallScanner:
    """Reads `{"name": "...", "arguments": {...}}`, in which the arguments may be called parameters.

    The arguments go out as they come. Where they precede the name, or are no object, they go out at the end; and what
    turns out to be another object, or names no tool that there is, is no call.

    Attributes:
        is_call: at least the name has gone out.
    """

    __slots__ = (
        "_closings",
        "_depth",
        "_end",
        "_first",
        "_index",
        "_is_escaped",
        "_is_quoted",
        "_names",
        "_next",
        "_text",
        "is_call",
    )

    def __init__(self, index: int, *, names: Collection[str]) -> None:
        self.is_call = False
        self._index = index
        self._names = names
        self._text = ""
        self._end: int | None = None
        self._first = self._next = 0  # character of the arguments; the first that has not gone out
        self._closings: list[int] = []  # where those of the object's values end that are objects or lists
        self._depth = 0
        self._is_quoted = self._is_escaped = False

    @property
    def is_complete(self) -> bool:
        """The object has ended, or this was none."""
        return self._end is not None

    @property
    def raw(self) -> str:
        """The object's text so far."""
        return self._text[: self._end]

    @property
    def rest(self) -> str:
        """The text behind the object."""
        return "" if self._end is None else self._text[self._end :]

    def push(self, text: str) -> list[CallDelta]:
        """Takes new text and returns the deltas that are certain now."""
        start = len(self._text)
        self._text += text
        for position in range(start, len(self._text)):
            self._step(self._text[position], position)
            if self.is_complete:
                break
        if self.is_call:
            return self._take_arguments()
        header = _HEADER.match(self.raw)
        if header is not None and (name := _unquote(header[1])) in self._names:
            self.is_call = True
            self._first = self._next = header.end()
            return [CallDelta(self._index, name), *self._take_arguments()]
        return self._take_whole() if self.is_complete else []

    def _step(self, char: str, position: int) -> None:
        if self._is_quoted:
            self._is_quoted = char != '"' or self._is_escaped
            self._is_escaped = char == "\\" and not self._is_escaped
        elif char in "{[":
            self._depth += 1
        elif self._depth == 0:
            if not char.isspace():
                self._end = 0
        elif char == '"':
            self._is_quoted = True
        elif char in "}]":
            self._depth -= 1
            if self._depth == 1:
                self._closings.append(position + 1)
            elif self._depth == 0:
                self._end = position + 1

    def _take_arguments(self) -> list[CallDelta]:
        stop = next((closing for closing in self._closings if closing > self._first), len(self.raw))
        arguments, self._next = self._text[self._next : stop], stop
        return [CallDelta(self._index, arguments=arguments)] if arguments else []

    def _take_whole(self) -> list[CallDelta]:
        """The call that the whole object makes, if it makes one."""
        try:
            document = json.loads(self.raw)
        except ValueError:
            return []
        if not isinstance(document, dict) or document.get("name") not in self._names:
            return []
        self.is_call = True
        arguments = document.get("arguments", document.get("parameters"))
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        return [CallDelta(self._index, document["name"], text)]


def _unquote(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        return ""
