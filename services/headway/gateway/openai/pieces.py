"""Parses and writes large JSON documents in pieces. A parser in C holds the interpreter's lock until it is done, about
15 ms for each MiB of numbers and more of lists, and with it everybody else's streams; between two pieces others have
their turn.

A document is cut behind commas. What is open there is closed at the end of the piece, and opened again at the start of
the next, whose content then goes into the lists and objects that are there:

    {"a": [1, 2, 3, [4, 5], 6], "b": 7}

    {"a": [1, 2 ]}      {"": [ 3, [4 ]]}      {"": [[ 5], 6], "b": 7}

Each piece is parsed by the same parser as whole documents, which refuses what is wrong with it.
"""

import re
import secrets
from collections.abc import Callable
from typing import Any

import orjson

from headway.core.errors import InvalidArgumentError

MAX_CONTAINERS = 1 << 17

_PIECE_ENTRIES = 32
_WITH_ARRAYS = orjson.OPT_SERIALIZE_NUMPY

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_WHOLE_STRING = re.compile(_STRING, re.DOTALL)
_ITEMS = re.compile(rb'(?:(?:[^",\[\]{}]++|' + _STRING + rb")*+,)++", re.DOTALL)  # up to the last comma among them
_BRACKET_OR_QUOTE = re.compile(rb'["\[\]{}]')
_BLANKS = b" \t\r\n"
_NEXT = re.compile(rb"[ \t\r\n]*+(.)", re.DOTALL)
_CLOSING = {ord("["): b"]", ord("{"): b"}"}


def dumps_in_pieces(document: Any) -> bytes:
    """Returns what `orjson.dumps` does, whatever the size of the document's lists. For a thread of its own."""
    pieces: list[bytes] = []
    _write(document, pieces.append)
    return b"".join(pieces)


def _write(value: Any, put: Callable[[bytes], None]) -> None:
    if isinstance(value, dict):
        before = b"{"
        for name, child in value.items():
            put(before + orjson.dumps(name) + b":")
            _write(child, put)
            before = b","
        put(b"}" if value else b"{}")
    elif isinstance(value, list) and len(value) > _PIECE_ENTRIES:
        before = b"["
        for start in range(0, len(value), _PIECE_ENTRIES):
            put(before + orjson.dumps(value[start : start + _PIECE_ENTRIES], option=_WITH_ARRAYS)[1:-1])
            before = b","
        put(b"]")
    elif isinstance(value, list) and value:
        before = b"["
        for child in value:
            put(before)
            _write(child, put)
            before = b","
        put(b"]")
    else:
        put(orjson.dumps(value, option=_WITH_ARRAYS))


def loads_in_pieces(content: bytes, *, piece_bytes: int) -> Any:
    """Returns what `orjson.loads` does, with its JSONDecodeError.

    Args:
        piece_bytes: that are parsed at once. Only what cannot be cut is longer: a string.

    Raises:
        InvalidArgumentError: there are more than MAX_CONTAINERS lists and objects, each of which the interpreter looks
            at whenever it collects garbage, in one go.
    """
    return _Document(content, piece_bytes).parse()


class _Document:
    def __init__(self, content: bytes, piece_bytes: int) -> None:
        self._content = content
        self._piece_bytes = piece_bytes
        self._start = 0  # of the piece
        self._root: Any = None
        self._open: list[int] = []  # where the brackets stand that are open
        self._nodes: list[Any] = []  # lists and objects that are open where the piece begins, the outermost first
        self._lowest = 0  # how many of them have been open since
        self._own_key = secrets.token_hex(16)  # no client's

    def parse(self) -> Any:
        content, position, num_containers = self._content, 0, 0
        while position < len(content):
            if items := _ITEMS.match(content, position, position + self._piece_bytes):
                position = items.end()
                if position - self._start >= self._piece_bytes:
                    self._cut(position - 1)
            found = _BRACKET_OR_QUOTE.search(content, position, position + self._piece_bytes)
            if found is None:
                position += 0 if items else self._piece_bytes
                continue
            position = found.end()
            match found.group():
                case b'"':
                    string = _WHOLE_STRING.match(content, found.start())
                    if string is None:
                        break  # the parser says so
                    position = string.end()
                case b"[" | b"{":
                    self._open.append(found.start())
                    num_containers += 1
                    if num_containers > MAX_CONTAINERS:
                        raise _too_many()
                case _:
                    if not self._open:
                        break  # likewise
                    self._open.pop()
                    self._lowest = min(self._lowest, len(self._open))
        self._take(len(content), b"")
        return self._root

    def _cut(self, comma: int) -> None:
        """Ends the piece at a comma within a list or an object."""
        content = self._content
        before, behind = content[self._start : comma].rstrip(_BLANKS), _NEXT.match(content, comma + 1)
        is_in_place = before and before[-1:] not in b"[{," and behind is not None and behind.group(1) not in b"]}"
        if not self._open or not is_in_place:
            return
        self._take(comma, b"".join(_CLOSING[content[start]] for start in reversed(self._open)))
        self._start = comma + 1

    def _take(self, end: int, closing: bytes) -> None:
        """Parses the piece up to a place, and adds it to the document."""
        opening = self._opening()
        parsed = orjson.loads(b"".join((opening, memoryview(self._content)[self._start : end], closing)))
        if self._nodes:
            self._merge(parsed)
        else:
            self._root = parsed
        if not closing:
            return
        nodes = self._nodes[: self._lowest] if self._nodes else []
        for depth in range(len(nodes), len(self._open)):
            nodes.append(self._child(nodes[-1], self._open[depth]) if nodes else self._root)
        self._nodes, self._lowest = nodes, len(nodes)

    def _opening(self) -> bytes:
        """Opens what is open where the piece begins, each within the one before."""
        *outer, inner = ["{" if isinstance(node, dict) else "[" for node in self._nodes] or [""]
        return "".join([*(f'{{"{self._own_key}":' if bracket == "{" else bracket for bracket in outer), inner]).encode()

    def _merge(self, parsed: Any) -> None:
        """Adds what a piece holds to what is open where it begins."""
        for depth, node in enumerate(self._nodes):
            is_innermost = depth == len(self._nodes) - 1
            if isinstance(node, dict):
                inner = None if is_innermost else parsed.pop(self._own_key)
                node.update(parsed)
            else:
                inner = None if is_innermost else parsed[0]
                node.extend(parsed if is_innermost else parsed[1:])
            parsed = inner

    def _child(self, node: Any, bracket: int) -> Any:
        """Returns the list or object in a node that has been opened last, with the bracket at a place."""
        if isinstance(node, list):
            return node[-1]
        content = self._content
        end = content.rfind(b'"', 0, bracket)
        start = content.rfind(b'"', 0, end)
        while _is_escaped(content, start):
            start = content.rfind(b'"', 0, start)
        return node[orjson.loads(content[start : end + 1])]


def _is_escaped(content: bytes, quote: int) -> bool:
    """Whether a quote stands within a string."""
    start = quote
    while content[start - 1] == ord("\\"):
        start -= 1
    return (quote - start) % 2 == 1


def _too_many() -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The body holds more than {MAX_CONTAINERS} lists and objects.", hint="Send it in several requests."
    )
