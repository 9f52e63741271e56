"""Answers of POST /v1/chat/completions whose text is more than words: tool calls, reasoning."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from headway.core.request import FinishReason
from headway.gateway.job import Delta, Job
from headway.gateway.openai.chat import ChatFormat
from headway.gateway.openai.format import AnswerParts
from headway.gateway.tools.call import CallDelta
from headway.gateway.tools.parser import AnswerParser, Piece
from headway.gateway.tools.reasoning import Reasoning

_CALLED = "tool_calls"


class ParsedChatFormat(ChatFormat):
    """The assistant's messages, in which words, reasoning and calls are told apart.

    Args:
        make_parser: makes a parser for each answer.
    """

    def __init__(self, job: Job, *, make_parser: Callable[[], AnswerParser], parts: AnswerParts) -> None:
        super().__init__(job, parts=parts)
        self._parsers = [make_parser() for _ in range(job.num_sequences)]
        self._unsent: list[list[Delta]] = [[] for _ in range(job.num_sequences)]  # whose tokens no event has told of

    def text_events(self, index: int) -> Callable[[str], bytes]:
        return lambda text: b"".join(self._parts(Delta(index=index, text=text)))

    def _parts(self, delta: Delta) -> list[bytes]:
        """Events of the pieces that are certain; the first tells of all tokens since the last."""
        unsent = self._unsent[delta.index]
        if delta.logprobs or (self._asked.token_ids and delta.token_ids):
            unsent.append(delta)
        pieces = self._read(delta) or ([""] if delta.finish_reason is not None and unsent else [])
        parts = []
        for piece in pieces:
            parts.append(self._part(delta.index, _delta_document(piece), unsent))
            unsent.clear()
        return parts

    def _message(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        words, reasoning, calls = "", "", dict[int, dict[str, Any]]()
        for piece in [piece for delta in deltas for piece in self._read(delta)]:
            if isinstance(piece, str):
                words += piece
            elif isinstance(piece, Reasoning):
                reasoning += piece.text
            elif piece.name:
                calls[piece.index] = _call_document(piece)
            else:
                calls[piece.index]["function"]["arguments"] += piece.arguments
        message: dict[str, Any] = {
            "role": "assistant",
            "content": words if words or not calls else None,
            "refusal": None,
        }
        if reasoning:
            message["reasoning_content"] = reasoning
        return message | ({"tool_calls": list(calls.values())} if calls else {})

    def _reason(self, delta: Delta) -> str:
        assert delta.finish_reason is not None, "the delta is a sequence's last"
        has_called = self._parsers[delta.index].num_calls > 0
        return _CALLED if has_called and delta.finish_reason is FinishReason.STOP else delta.finish_reason

    def _read(self, delta: Delta) -> list[Piece]:
        parser = self._parsers[delta.index]
        pieces = parser.push(delta.text)
        return pieces + parser.flush() if delta.finish_reason is not None else pieces


def _call_document(call: CallDelta) -> dict[str, Any]:
    return {
        "id": f"call_{uuid.uuid4().hex}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _delta_document(piece: Piece) -> bytes:
    if isinstance(piece, str):
        return orjson.dumps({"content": piece})
    if isinstance(piece, Reasoning):
        return orjson.dumps({"reasoning_content": piece.text})
    document = _call_document(piece) if piece.name else {"function": {"arguments": piece.arguments}}
    return orjson.dumps({"tool_calls": [{"index": piece.index, **document}]})
