"""Answers of POST /v1/chat/completions."""

from collections.abc import Sequence
from typing import Any

import orjson

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
            if delta.finish_reason is None or delta.text or delta.logprobs:
                events.append(self._template.event(delta.index, self._content(delta)))
            if delta.finish_reason is not None:
                events.append(self._template.event(delta.index, _END % delta.finish_reason.encode()))
        return b"".join(events)

    def choices(self, deltas: Sequence[Delta]) -> list[dict[str, Any]]:
        by_index: dict[int, list[Delta]] = {index: [] for index in range(self._job.num_sequences)}
        for delta in deltas:
            by_index[delta.index].append(delta)
        return [
            {
                "index": index,
                "message": {"role": "assistant", "content": "".join(delta.text for delta in own), "refusal": None},
                "logprobs": self._logprobs(own),
                "finish_reason": own[-1].finish_reason,
            }
            for index, own in by_index.items()
        ]

    def _content(self, delta: Delta) -> bytes:
        logprobs = orjson.dumps(self._logprobs([delta])) if self._with_logprobs else b"null"
        return b',"delta":{"content":%b},"logprobs":%b,"finish_reason":null' % (orjson.dumps(delta.text), logprobs)

    def _logprobs(self, deltas: Sequence[Delta]) -> dict[str, Any] | None:
        if not self._with_logprobs:
            return None
        return chat_logprobs(self._job.model.tokenizer, [entry for delta in deltas for entry in delta.logprobs])
