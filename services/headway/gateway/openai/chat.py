"""Answers of POST /v1/chat/completions."""

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from headway.core.request import TokenLogprobs
from headway.gateway.job import Delta, Job
from headway.gateway.openai.format import EventTemplate, envelope
from headway.gateway.openai.logprobs import chat_logprobs

_ROLE = b',"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'
_END = b',"delta":{},"logprobs":null,"finish_reason":"%b"'


class ChatFormat:
    """The assistant's messages."""

    def __init__(self, job: Job, *, with_usage: bool) -> None:
        self._job = job
        self._with_logprobs = job.options.num_logprobs is not None
        self._started: set[int] = set()
        self.envelope = envelope(job, prefix="chatcmpl", kind="chat.completion")
        self.event_envelope = {**self.envelope, "object": "chat.completion.chunk"}
        self._template = EventTemplate(self.event_envelope, with_usage=with_usage)

    def events(self, deltas: Sequence[Delta]) -> bytes:
        """Each message starts with its role, and ends with an event of its own that tells why."""
        events: list[bytes] = []
        for delta in deltas:
            if delta.index not in self._started:
                self._started.add(delta.index)
                events.append(self._template.event(delta.index, _ROLE))
            events += self._parts(delta)
            if delta.finish_reason is not None:
                events.append(self._template.event(delta.index, _END % self._reason(delta).encode()))
        return b"".join(events)

    def text_events(self, index: int) -> Callable[[str], bytes]:
        return self._template.text_events(
            index, before=b',"delta":{"content":', after=b'},"logprobs":null,"finish_reason":null'
        )

    def choices(self, deltas: Sequence[Delta]) -> list[dict[str, Any]]:
        by_index: dict[int, list[Delta]] = {index: [] for index in range(self._job.num_sequences)}
        for delta in deltas:
            by_index[delta.index].append(delta)
        return [
            {
                "index": index,
                "message": self._message(own),
                "logprobs": self._logprobs([entry for delta in own for entry in delta.logprobs]),
                "finish_reason": self._reason(own[-1]),
            }
            for index, own in by_index.items()
        ]

    def _parts(self, delta: Delta) -> list[bytes]:
        """The events between a message's start and end that a delta makes."""
        if delta.finish_reason is not None and not delta.text and not delta.logprobs:
            return []
        return [self._part(delta.index, b'{"content":%b}' % orjson.dumps(delta.text), delta.logprobs)]

    def _part(self, index: int, document: bytes, entries: Sequence[TokenLogprobs]) -> bytes:
        """An event with the `delta` that a serialised document says."""
        logprobs = orjson.dumps(self._logprobs(entries)) if self._with_logprobs else b"null"
        return self._template.event(index, b',"delta":%b,"logprobs":%b,"finish_reason":null' % (document, logprobs))

    def _message(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        """The whole message of one sequence."""
        return {"role": "assistant", "content": "".join(delta.text for delta in deltas), "refusal": None}

    def _reason(self, delta: Delta) -> str:
        """Why a message ended, by its last delta."""
        assert delta.finish_reason is not None, "the delta is a sequence's last"
        return delta.finish_reason

    def _logprobs(self, entries: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        return chat_logprobs(self._job.model.tokenizer, entries) if self._with_logprobs else None
