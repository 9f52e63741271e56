"""Answers of POST /v1/chat/completions."""

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from headway.core.errors import HeadwayError
from headway.core.request import TokenLogprobs
from headway.gateway.job import Delta, Job, Usage
from headway.gateway.openai.format import AnswerParts, EventTemplate, envelope, error_event, last_events, usage_document
from headway.gateway.openai.logprobs import chat_logprobs, prompt_logprobs

_ROLE = b',"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'
_END = b',"delta":{},"logprobs":null,"finish_reason":"%b"'


class ChatFormat:
    """Formats answers as chat completions."""

    def __init__(self, job: Job, *, parts: AnswerParts) -> None:
        self._job = job
        self._asked = parts
        self._with_logprobs = job.options.num_logprobs is not None
        self._started: set[int] = set()
        self._envelope = envelope(job, prefix="chatcmpl", kind="chat.completion")
        self._event_envelope = {**self._envelope, "object": "chat.completion.chunk"}
        self._template = EventTemplate(job, self._event_envelope, parts=parts)

    def events(self, deltas: Sequence[Delta]) -> bytes:
        """Returns the server-sent events of new deltas. Each message starts with its role, and ends with an event of
        its own that gives the finish reason.
        """
        events: list[bytes] = []
        for delta in deltas:
            if delta.index not in self._started:
                self._started.add(delta.index)
                events.append(self._template.event(delta.index, _ROLE, beside=self._prompt_ids()))
            self._template.count(delta)
            events += self._parts(delta)
            if delta.finish_reason is not None:
                events.append(self._template.event(delta.index, _END % self._reason(delta).encode()))
        return b"".join(events)

    def text_events(self, index: int) -> Callable[[str], bytes]:
        return self._template.text_events(
            index, before=b',"delta":{"content":', after=b'},"logprobs":null,"finish_reason":null'
        )

    def last_events(self, usage: Usage) -> bytes:
        return last_events(self._event_envelope, usage, parts=self._asked)

    def error_events(self, error: HeadwayError) -> bytes:
        return error_event(error)

    def document(self, deltas: Sequence[Delta], usage: Usage) -> dict[str, Any]:
        by_index: dict[int, list[Delta]] = {index: [] for index in range(self._job.num_sequences)}
        for delta in deltas:
            by_index[delta.index].append(delta)
        choices = [
            {
                "index": index,
                "message": self._message(own),
                "logprobs": self._logprobs([entry for delta in own for entry in delta.logprobs]),
                "finish_reason": self._reason(own[-1]),
                **({"token_ids": _token_ids(own)} if self._asked.token_ids else {}),
            }
            for index, own in by_index.items()
        ]
        return {
            **self._envelope,
            "choices": choices,
            **self._prompt_fields(by_index[0]),
            "usage": usage_document(usage),
        }

    def _prompt_fields(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        """Beside the choices, which have the one prompt in common."""
        fields: dict[str, Any] = {}
        if self._asked.token_ids:
            fields["prompt_token_ids"] = self._job.prompt_of(0).token_ids
        if self._asked.num_prompt_logprobs is not None:
            known = [entry for delta in deltas for entry in delta.prompt_logprobs]
            tokenizer, num_top = self._job.model.tokenizer, self._asked.num_prompt_logprobs
            fields["prompt_logprobs"] = prompt_logprobs(tokenizer, known, num_top=num_top)
        return fields

    def _prompt_ids(self) -> bytes:
        if not self._asked.token_ids:
            return b""
        return b',"prompt_token_ids":' + orjson.dumps(self._job.prompt_of(0).token_ids)

    def _parts(self, delta: Delta) -> list[bytes]:
        """The events between a message's start and end that a delta makes."""
        tells_ids = self._asked.token_ids and delta.token_ids
        if delta.finish_reason is not None and not (delta.text or delta.logprobs or tells_ids):
            return []
        return [self._part(delta.index, b'{"content":%b}' % orjson.dumps(delta.text), [delta])]

    def _part(self, index: int, document: bytes, deltas: Sequence[Delta]) -> bytes:
        """An event with the `delta` that a serialised document says, of the tokens of our deltas."""
        entries = [entry for delta in deltas for entry in delta.logprobs]
        logprobs = orjson.dumps(self._logprobs(entries)) if self._with_logprobs else b"null"
        rest = b',"delta":%b,"logprobs":%b,"finish_reason":null' % (document, logprobs)
        if self._asked.token_ids:
            rest += b',"token_ids":' + orjson.dumps(_token_ids(deltas))
        return self._template.event(index, rest)

    def _message(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        """The whole message of one sequence."""
        return {"role": "assistant", "content": "".join(delta.text for delta in deltas), "refusal": None}

    def _reason(self, delta: Delta) -> str:
        """Returns the finish reason of a message, from its last delta."""
        assert delta.finish_reason is not None, "the delta is a sequence's last"
        return delta.finish_reason

    def _logprobs(self, entries: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        return chat_logprobs(self._job.model.tokenizer, entries) if self._with_logprobs else None


def _token_ids(deltas: Sequence[Delta]) -> list[int]:
    return [token_id for delta in deltas for token_id in delta.token_ids]
