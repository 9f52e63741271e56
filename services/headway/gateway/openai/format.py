"""What the formats of the generation endpoints share: they make documents and events of deltas."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from headway.core.errors import HeadwayError
from headway.gateway.job import Delta, Job, Usage
from headway.gateway.openai.error import error_body

EVENT_START = b"data: "
EVENT_END = b"\n\n"
_DONE_EVENT = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerParts:
    """The parts that an answer has besides its text.

    Attributes:
        usage: whether a stream ends with the usage; a document always has it.
        continuous_usage: whether each event of a stream has the usage of its own choice so far.
        token_ids: whether the token ids of prompts and choices are given.
        num_prompt_logprobs: as in `SamplingParams`.
    """

    usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False
    num_prompt_logprobs: int | None = None

    @property
    def tells_tokens(self) -> bool:
        """Whether the events of a stream tell more of a token than its text."""
        return self.token_ids or self.continuous_usage


class Format(Protocol):
    """One request's answer, as events or as a document."""

    def events(self, deltas: Sequence[Delta]) -> bytes:
        """The server-sent events for deltas."""

    def text_events(self, index: int) -> Callable[[str], bytes]:
        """The same for the deltas of a choice that has begun which are one more token's text each."""

    def document(self, deltas: Sequence[Delta], usage: Usage) -> dict[str, Any]:
        """Returns the answer's document for all deltas of a job; choices are in the order of their index."""

    def last_events(self, usage: Usage) -> bytes:
        """The events that end a stream."""

    def error_events(self, error: HeadwayError) -> bytes:
        """The events that end a stream which breaks off."""


def envelope(job: Job, *, prefix: str, kind: str) -> dict[str, Any]:
    """The fields that every document and event of an answer has; `prefix` and `kind` are the endpoint's."""
    return {
        "id": f"{prefix}-{job.answer_id}",
        "object": kind,
        "created": int(time.time()) if job.journal is None else job.journal.record.created_s,
        "model": job.model.name,
        "system_fingerprint": job.model.fingerprint,
    }


def usage_document(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.num_prompt_tokens,
        "completion_tokens": usage.num_completion_tokens,
        "total_tokens": usage.num_prompt_tokens + usage.num_completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.num_cached_tokens},
    }


class EventTemplate:
    """Events of one answer that differ in one choice each: all else is serialised once.

    Args:
        parts: where the client asked for usage at the end, it is null in every event before.
    """

    def __init__(self, job: Job, event_envelope: dict[str, Any], *, parts: AnswerParts) -> None:
        self._job = job
        self._head = EVENT_START + orjson.dumps(event_envelope)[:-1] + b',"choices":[{"index":'
        self._tail = b'}],"usage":null}' + EVENT_END if parts.usage else b"}]}" + EVENT_END
        self._is_counting = parts.continuous_usage
        self._num_tokens: Counter[int] = Counter()

    def count(self, delta: Delta) -> None:
        """Adds the delta's tokens to the usage, from the next event of its choice on."""
        self._num_tokens[delta.index] += len(delta.token_ids)

    def event(self, index: int, rest: bytes, *, beside: bytes = b"") -> bytes:
        """
        Args:
            rest: the choice's other fields, serialised, with a comma in front.
            beside: fields beside the choices, likewise.
        """
        if not beside and not self._is_counting:
            return b"%b%d%b%b" % (self._head, index, rest, self._tail)
        tail = self._tail[2:]
        if self._is_counting:
            tail = b',"usage":%b}%b' % (orjson.dumps(self._usage(index)), EVENT_END)
        return b"%b%d%b}]%b%b" % (self._head, index, rest, beside, tail)

    def text_events(self, index: int, *, before: bytes, after: bytes) -> Callable[[str], bytes]:
        """Events whose other fields are a text and what stands before and behind it."""
        head, tail, dumps = b"%b%d%b" % (self._head, index, before), after + self._tail, orjson.dumps
        return lambda text: head + dumps(text) + tail

    def _usage(self, index: int) -> dict[str, int]:
        num_prompt_tokens = len(self._job.prompt_of(index).token_ids)
        num_tokens = self._num_tokens[index]
        return {
            "prompt_tokens": num_prompt_tokens,
            "completion_tokens": num_tokens,
            "total_tokens": num_prompt_tokens + num_tokens,
        }


def last_events(event_envelope: dict[str, Any], usage: Usage, *, parts: AnswerParts) -> bytes:
    """The end of a stream, with the usage where the client asked for it."""
    if not parts.usage:
        return _DONE_EVENT
    document = {**event_envelope, "choices": [], "usage": usage_document(usage)}
    return EVENT_START + orjson.dumps(document) + EVENT_END + _DONE_EVENT


def error_event(error: HeadwayError) -> bytes:
    """The end of a stream that breaks off."""
    return EVENT_START + error_body(error) + EVENT_END
