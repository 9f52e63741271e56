"""The HTTP answer to a generation request: server-sent events, or one document."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import TypeAlias

from starlette.types import Send

from headway.core.errors import HeadwayError, InvalidArgumentError
from headway.gateway.disconnect import stopping
from headway.gateway.job import Delta, Job, Usage
from headway.gateway.openai.format import Format
from headway.gateway.openai.pieces import dumps_in_pieces
from headway.gateway.threads import Threads

log = logging.getLogger(__name__)

Header: TypeAlias = tuple[bytes, bytes]

_MAX_INLINE_TOKENS = 1024
_MAX_LOGPROBS = 1 << 22

_EVENT_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies: pass events on as they come
]


class Events:
    """The events of one answer, and what they tell of in sum.

    Args:
        write: sends a part of the answer at once.
    """

    def __init__(self, job: Job, form: Format, *, write: Callable[[bytes], None]) -> None:
        self.usage = Usage(num_prompt_tokens=job.num_prompt_tokens)
        self._n = job.options.n
        self._form = form
        self._write = write

    def of(self, deltas: list[Delta]) -> bytes:
        self.usage.count(deltas, n=self._n)
        return self._form.events(deltas)

    def last(self) -> bytes:
        return self._form.last_events(self.usage)

    def writer(self, index: int) -> Callable[[str], None]:
        """Sends the events of a choice's tokens that come with nothing else, one text each."""
        usage, event, send = self.usage, self._form.text_events(index), self._write

        def write(text: str) -> None:
            usage.num_completion_tokens += 1
            send(event(text))

        return write


async def send_events(
    send: Send,
    events: Events,
    deltas: AsyncGenerator[list[Delta], None],
    *,
    form: Format,
    headers: Iterable[Header] = (),
) -> None:
    """Streams. What fails before the first delta is raised; later the stream ends with an event that tells it,
    also when the server stops.

    Args:
        deltas: all but those that writers of `events` send meanwhile.
        headers: of the answer, besides those of any stream.
    """
    async with aclosing(deltas):
        batch = await anext(deltas)
        await send({"type": "http.response.start", "status": 200, "headers": [*_EVENT_HEADERS, *headers]})
        try:
            while batch:
                if body := events.of(batch):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                batch = await anext(deltas, [])
            last = events.last()
        except HeadwayError as error:
            log.warning("the stream breaks off: %s", error)
            last = form.error_events(error)
        except asyncio.CancelledError:  # a client that has left does not hear this
            last = form.error_events(stopping())
    await send({"type": "http.response.body", "body": last})


async def send_document(
    send: Send,
    job: Job,
    deltas: AsyncGenerator[list[Delta], None],
    *,
    form: Format,
    threads: Threads,
    headers: Iterable[Header] = (),
) -> None:
    """Waits until everything is there.

    Args:
        threads: where a large document is made: one request may ask for a million log probabilities.
        headers: besides those of any document.
    """
    usage, num_logprobs = Usage(num_prompt_tokens=job.num_prompt_tokens), 0
    collected: list[Delta] = []
    async with aclosing(deltas):
        async for batch in deltas:
            usage.count(batch, n=job.options.n)
            num_logprobs += sum([1 + len(entry.top) for delta in batch for entry in delta.logprobs])
            _check_num_logprobs(num_logprobs)
            collected += batch
    tells_more = num_logprobs > 0 or job.options.num_prompt_logprobs is not None
    is_long = tells_more or usage.num_completion_tokens > _MAX_INLINE_TOKENS
    content = await threads.run(
        lambda: dumps_in_pieces(form.document(collected, usage)), is_long=is_long, tenant=job.tenant
    )
    own = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": content})


def _check_num_logprobs(num_logprobs: int) -> None:
    """InvalidArgumentError where a document would have more than a gateway can hold for one request: how many they
    become is not known before."""
    if num_logprobs > _MAX_LOGPROBS:
        raise InvalidArgumentError(
            f"The answer has more than {_MAX_LOGPROBS} log probabilities, which is the limit of one document.",
            hint="Ask for fewer of them, set n or max_tokens lower, or set stream to true.",
            field="logprobs",
        )
