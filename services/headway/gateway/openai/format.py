"""What the two generation endpoints make of deltas."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import orjson

from headway.gateway.job import Delta, Job, Usage

EVENT_START = b"data: "
EVENT_END = b"\n\n"
DONE_EVENT = b"data: [DONE]\n\n"


class Format(Protocol):
    """One request's answer, as events or as a document."""

    def events(self, deltas: Sequence[Delta]) -> bytes:
        """The server-sent events for deltas."""

    def text_events(self, index: int) -> Callable[[str], bytes]:
        """The same for the deltas of a choice that has begun which are one more token's text each."""

    def choices(self, deltas: Sequence[Delta]) -> list[dict[str, Any]]:
        """The choices that all of a job's deltas make up, in order of their index."""

    @property
    def envelope(self) -> dict[str, Any]:
        """What stands around the choices of a document."""

    @property
    def event_envelope(self) -> dict[str, Any]:
        """What stands around the choices of an event."""


def envelope(job: Job, *, prefix: str, kind: str) -> dict[str, Any]:
    """The fields that every document and event of an answer has; `prefix` and `kind` are the endpoint's."""
    return {
        "id": f"{prefix}-{job.request_id}",
        "object": kind,
        "created": int(time.time()),
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
        with_usage: whether the client asked for usage; it is null in every event but the last then.
    """

    def __init__(self, event_envelope: dict[str, Any], *, with_usage: bool) -> None:
        self._head = EVENT_START + orjson.dumps(event_envelope)[:-1] + b',"choices":[{"index":'
        self._tail = b'}],"usage":null}' + EVENT_END if with_usage else b"}]}" + EVENT_END

    def event(self, index: int, rest: bytes) -> bytes:
        """`rest` is the choice's other fields, serialised, with a comma in front."""
        return b"%b%d%b%b" % (self._head, index, rest, self._tail)

    def text_events(self, index: int, *, before: bytes, after: bytes) -> Callable[[str], bytes]:
        """Events whose other fields are a text and what stands before and behind it."""
        head, tail, dumps = b"%b%d%b" % (self._head, index, before), after + self._tail, orjson.dumps
        return lambda text: head + dumps(text) + tail


def usage_event(event_envelope: dict[str, Any], usage: Usage) -> bytes:
    """The last event of a stream whose client asked for usage."""
    document = {**event_envelope, "choices": [], "usage": usage_document(usage)}
    return EVENT_START + orjson.dumps(document) + EVENT_END
