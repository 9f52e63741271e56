"""The output of a response: items, and the events that tell how they grow."""

import uuid
from collections.abc import Sequence
from typing import Any, TypeAlias

from headway.gateway.tools.call import CallDelta
from headway.gateway.tools.parser import Piece
from headway.gateway.tools.reasoning import Reasoning

Event: TypeAlias = dict[str, Any]
Logprobs: TypeAlias = Sequence[dict[str, Any]]


class _TextItem:
    """A message, or reasoning: an item with one part, which is a text.

    Args:
        part: as it is before the first word.
    """

    def __init__(self, index: int, *, item: dict[str, Any], part: dict[str, Any]) -> None:
        self._index = index
        self._item = item
        self._part = part
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self._where = {"item_id": item["id"], "output_index": index, "content_index": 0}

    def begin(self) -> list[Event]:
        return [
            _added(self._index, {**self._item, "content": []}),
            {"type": "response.content_part.added", **self._where, "part": dict(self._part)},
        ]

    def grow(self, text: str, logprobs: Logprobs) -> list[Event]:
        self._texts.append(text)
        event = {"type": f"response.{self._part['type']}.delta", **self._where, "delta": text}
        if "logprobs" in self._part:
            self._logprobs += logprobs
            event["logprobs"] = logprobs
        return [event]

    def end(self, status: str) -> list[Event]:
        grown: dict[str, Any] = {"text": "".join(self._texts)}
        if "logprobs" in self._part:
            grown["logprobs"] = self._logprobs
        part = self._part | grown
        self._item |= {"status": status, "content": [part]}
        return [
            {"type": f"response.{part['type']}.done", **self._where, **grown},
            {"type": "response.content_part.done", **self._where, "part": part},
            _done(self._index, self._item),
        ]


class _CallItem:
    """A call of a function."""

    def __init__(self, index: int, *, item: dict[str, Any]) -> None:
        self._index = index
        self._item = item
        self._where = {"item_id": item["id"], "output_index": index}

    def begin(self) -> list[Event]:
        return [_added(self._index, dict(self._item))]

    def grow(self, text: str, logprobs: Logprobs) -> list[Event]:
        del logprobs
        self._item["arguments"] += text
        return [{"type": "response.function_call_arguments.delta", **self._where, "delta": text}]

    def end(self, status: str) -> list[Event]:
        self._item["status"] = status
        told = {"name": self._item["name"], "arguments": self._item["arguments"]}
        return [
            {"type": "response.function_call_arguments.done", **self._where, **told},
            _done(self._index, self._item),
        ]


class ResponseOutput:
    """Takes the pieces of an answer. What follows each other and is of one kind is one item.

    Attributes:
        items: as the API describes them; the last one may still grow.
    """

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self._open: _TextItem | _CallItem | None = None
        self._kind: tuple[str, int] | None = None  # of the open item; calls are told apart by their index

    @property
    def is_reasoning(self) -> bool:
        """Whether what came last is reasoning."""
        return self._kind is not None and self._kind[0] == "reasoning"

    def take(self, piece: Piece, *, logprobs: Logprobs = ()) -> list[Event]:
        """The events of a new piece; `logprobs` are those of its tokens."""
        events: list[Event] = []
        kind, text = _kind_of(piece), _text_of(piece)
        if kind != self._kind or self._open is None:
            events += self.close("completed")
            self._open, self._kind = self._make(piece), kind
            events += self._open.begin()
        return events + (self._open.grow(text, logprobs) if text else [])

    def close(self, status: str) -> list[Event]:
        """Ends the item that is open."""
        item, self._open, self._kind = self._open, None, None
        return [] if item is None else item.end(status)

    def _make(self, piece: Piece) -> _TextItem | _CallItem:
        index = len(self.items)
        if isinstance(piece, CallDelta):
            call = {
                "id": _new_id("fc"),
                "type": "function_call",
                "call_id": _new_id("call"),
                "name": piece.name,
                "arguments": "",
                "status": "in_progress",
            }
            self.items.append(call)
            return _CallItem(index, item=call)
        part: dict[str, Any]
        if isinstance(piece, Reasoning):
            item = {"id": _new_id("rs"), "type": "reasoning", "summary": [], "content": [], "status": "in_progress"}
            part = {"type": "reasoning_text", "text": ""}
        else:
            item = {
                "id": _new_id("msg"),
                "type": "message",
                "role": "assistant",
                "content": [],
                "status": "in_progress",
            }
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self.items.append(item)
        return _TextItem(index, item=item, part=part)


def _kind_of(piece: Piece) -> tuple[str, int]:
    if isinstance(piece, CallDelta):
        return ("call", piece.index)
    return ("reasoning" if isinstance(piece, Reasoning) else "message", 0)


def _text_of(piece: Piece) -> str:
    if isinstance(piece, CallDelta):
        return piece.arguments
    return piece.text if isinstance(piece, Reasoning) else piece


def _added(index: int, item: dict[str, Any]) -> Event:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _done(index: int, item: dict[str, Any]) -> Event:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"
