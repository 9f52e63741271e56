"""Answers of POST /v1/completions."""

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from headway.core.errors import HeadwayError
from headway.core.request import FinishReason
from headway.gateway.job import Delta, Job, Usage
from headway.gateway.openai.format import AnswerParts, EventTemplate, envelope, error_event, last_events, usage_document
from headway.gateway.openai.logprobs import completion_logprobs, echoed_logprobs, prompt_logprobs


class CompletionFormat:
    """Formats answers as text completions.

    Args:
        echo: whether the prompt comes in front.
    """

    def __init__(self, job: Job, *, echo: bool, parts: AnswerParts) -> None:
        self._job = job
        self._parts = parts
        self._echo = echo
        self._with_logprobs = job.options.num_logprobs is not None
        self._started: set[int] = set()
        self._envelope = envelope(job, prefix="cmpl", kind="text_completion")
        self._event_envelope = self._envelope
        self._template = EventTemplate(job, self._envelope, parts=parts)

    def events(self, deltas: Sequence[Delta]) -> bytes:
        is_plain = not (self._echo or self._with_logprobs or self._parts.tells_tokens)
        event = self._plain_event if is_plain else self._event
        return b"".join([event(delta) for delta in deltas])

    def text_events(self, index: int) -> Callable[[str], bytes]:
        return self._template.text_events(index, before=b',"text":', after=b',"logprobs":null,"finish_reason":null')

    def last_events(self, usage: Usage) -> bytes:
        return last_events(self._event_envelope, usage, parts=self._parts)

    def error_events(self, error: HeadwayError) -> bytes:
        return error_event(error)

    def document(self, deltas: Sequence[Delta], usage: Usage) -> dict[str, Any]:
        by_index: dict[int, list[Delta]] = {index: [] for index in range(self._job.num_sequences)}
        for delta in deltas:
            by_index[delta.index].append(delta)
        choices = [
            {
                "index": index,
                "text": (self._prompt_text(index) if self._echo else "") + "".join(delta.text for delta in own),
                "logprobs": self._logprobs(index, own, with_prompt=self._echo),
                "finish_reason": _reason(own[-1].finish_reason),
                **self._token_fields(index, own, with_prompt=True),
                **self._prompt_fields(own),
            }
            for index, own in by_index.items()
        ]
        return {**self._envelope, "choices": choices, "usage": usage_document(usage)}

    def _plain_event(self, delta: Delta) -> bytes:
        reason = b"null" if delta.finish_reason is None else b'"%b"' % delta.finish_reason.encode()
        rest = b',"text":%b,"logprobs":null,"finish_reason":%b' % (orjson.dumps(delta.text), reason)
        return self._template.event(delta.index, rest)

    def _event(self, delta: Delta) -> bytes:
        is_first = delta.index not in self._started
        self._started.add(delta.index)
        self._template.count(delta)
        with_prompt = self._echo and is_first
        fields = {
            "text": (self._prompt_text(delta.index) if with_prompt else "") + delta.text,
            "logprobs": self._logprobs(delta.index, [delta], with_prompt=with_prompt),
            "finish_reason": _reason(delta.finish_reason),
            **self._token_fields(delta.index, [delta], with_prompt=is_first),
        }
        return self._template.event(delta.index, b"," + orjson.dumps(fields)[1:-1])

    def _token_fields(self, index: int, deltas: Sequence[Delta], *, with_prompt: bool) -> dict[str, Any]:
        if not self._parts.token_ids:
            return {}
        fields = {"token_ids": [token_id for delta in deltas for token_id in delta.token_ids]}
        return fields | ({"prompt_token_ids": self._job.prompt_of(index).token_ids} if with_prompt else {})

    def _prompt_fields(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        num_top = self._parts.num_prompt_logprobs
        if num_top is None:
            return {}
        known = [entry for delta in deltas for entry in delta.prompt_logprobs]
        return {"prompt_logprobs": prompt_logprobs(self._job.model.tokenizer, known, num_top=num_top)}

    def _prompt_text(self, index: int) -> str:
        prompt = self._job.prompt_of(index)
        if prompt.text is not None:
            return prompt.text
        return self._job.model.tokenizer.decode(list(prompt.token_ids))

    def _logprobs(self, index: int, deltas: Sequence[Delta], *, with_prompt: bool) -> dict[str, Any] | None:
        if not self._with_logprobs:
            return None
        tokenizer = self._job.model.tokenizer
        entries = [entry for delta in deltas for entry in delta.logprobs]
        offsets = [offset for delta in deltas for offset in delta.text_offsets]
        shift = len(self._prompt_text(index)) if self._echo else 0
        output = completion_logprobs(tokenizer, entries, offsets, shift=shift)
        if not with_prompt:
            return output
        token_ids = self._job.prompt_of(index).token_ids
        known = [entry for delta in deltas for entry in delta.prompt_logprobs]
        prompt = echoed_logprobs(tokenizer, token_ids, known, num_top=self._job.options.num_logprobs or 0)
        return {name: prompt[name] + output[name] for name in output}


def _reason(reason: FinishReason | None) -> str | None:
    return None if reason is None else reason.value
