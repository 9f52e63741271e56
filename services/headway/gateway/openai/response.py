"""Answers of POST /v1/responses."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from headway.core.errors import HeadwayError
from headway.core.request import FinishReason
from headway.gateway.job import Delta, Job, Usage
from headway.gateway.openai.error import kind_of
from headway.gateway.openai.logprobs import chat_logprobs
from headway.gateway.openai.response_output import Event, ResponseOutput
from headway.gateway.openai.response_schema import ResponseRequest
from headway.gateway.tools.parser import AnswerParser

_COMPLETED, _INCOMPLETE, _FAILED = "completed", "incomplete", "failed"


class ResponseFormat:
    """Formats an answer as a response: its items, and in a stream the events of how they grow.

    Args:
        make_parser: makes what tells words, reasoning and calls apart.
    """

    def __init__(self, job: Job, *, request: ResponseRequest, make_parser: Callable[[], AnswerParser]) -> None:
        self._job = job
        self._parser = make_parser()
        self._output = ResponseOutput()
        self._head = _head_of(job, request)
        self._with_logprobs = job.options.num_logprobs is not None
        self._logprobs: list[dict[str, Any]] = []  # of tokens whose text has not come out
        self._num_reasoning_tokens = 0
        self._num_events = 0
        self._status = "in_progress"

    def events(self, deltas: Sequence[Delta]) -> bytes:
        lead: list[Event] = []
        if self._num_events == 0:
            snapshot = self._document(None)
            lead = [{"type": f"response.{kind}", "response": snapshot} for kind in ("created", "in_progress")]
        events = [event for delta in deltas for event in self._take(delta, num_tokens=len(delta.token_ids))]
        return self._serialised([*lead, *events])

    def text_events(self, index: int) -> Callable[[str], bytes]:
        return lambda text: self._serialised(self._take(Delta(index=index, text=text), num_tokens=1))

    def last_events(self, usage: Usage) -> bytes:
        return self._serialised([{"type": f"response.{self._status}", "response": self._document(usage)}])

    def error_events(self, error: HeadwayError) -> bytes:
        events = self._output.close(_INCOMPLETE)
        self._status = _FAILED
        fault = {"code": kind_of(error)[2] or "server_error", "message": str(error)}
        return self._serialised([*events, {"type": "response.failed", "response": self._document(None, error=fault)}])

    def document(self, deltas: Sequence[Delta], usage: Usage) -> dict[str, Any]:
        for delta in deltas:
            self._take(delta, num_tokens=len(delta.token_ids))
        return self._document(usage)

    def _take(self, delta: Delta, *, num_tokens: int) -> list[Event]:
        """The events that a delta makes."""
        if self._with_logprobs and delta.logprobs:
            self._logprobs += chat_logprobs(self._job.model.tokenizer, delta.logprobs)["content"]
        pieces = self._parser.push(delta.text)
        if delta.finish_reason is not None:
            pieces += self._parser.flush()
        events: list[Event] = []
        for piece in pieces:
            events += self._output.take(piece, logprobs=self._logprobs if isinstance(piece, str) else ())
            self._logprobs = []
        if self._output.is_reasoning:
            self._num_reasoning_tokens += num_tokens
        return events if delta.finish_reason is None else events + self._end(delta.finish_reason)

    def _end(self, reason: FinishReason) -> list[Event]:
        events = [] if self._output.items else self._output.take("")  # an answer has an item, if an empty one
        self._status = _INCOMPLETE if reason is FinishReason.LENGTH else _COMPLETED
        return events + self._output.close(self._status)

    def _document(self, usage: Usage | None, *, error: dict[str, Any] | None = None) -> dict[str, Any]:
        is_cut = self._status == _INCOMPLETE
        return {
            **self._head,
            "status": self._status,
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": list(self._output.items),
            "usage": None if usage is None else self._usage(usage),
        }

    def _usage(self, usage: Usage) -> dict[str, Any]:
        return {
            "input_tokens": usage.num_prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.num_cached_tokens},
            "output_tokens": usage.num_completion_tokens,
            "output_tokens_details": {"reasoning_tokens": self._num_reasoning_tokens},
            "total_tokens": usage.num_prompt_tokens + usage.num_completion_tokens,
        }

    def _serialised(self, events: Iterable[Event]) -> bytes:
        parts = []
        for event in events:
            numbered = {**event, "sequence_number": self._num_events}
            self._num_events += 1
            parts.append(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(numbered)))
        return b"".join(parts)


def _head_of(job: Job, request: ResponseRequest) -> dict[str, Any]:
    """What a response says of its request."""
    options = job.options
    form = None if request.text.format is None else request.text.format.model_dump(by_alias=True, exclude_none=True)
    return {
        "id": f"resp_{job.request_id}",
        "object": "response",
        "created_at": int(time.time()),
        "model": job.model.name,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata,
        "parallel_tool_calls": request.parallel_tool_calls,
        "previous_response_id": None,
        "reasoning": {"effort": request.reasoning.effort, "summary": None},
        "store": False,
        "temperature": options.temperature,
        "text": {"format": form or {"type": "text"}},
        "tool_choice": _choice_of(request),
        "tools": [tool.model_dump(exclude_unset=True) for tool in request.tools],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": options.top_p,
        "truncation": request.truncation,
    }


def _choice_of(request: ResponseRequest) -> str | dict[str, Any]:
    choice = request.tool_choice
    return {"type": "function", "name": choice.name} if choice.type == "function" else choice.type
