"""Sends a workload to an OpenAI-compatible endpoint and times every token that comes back."""

import asyncio
import time
from dataclasses import dataclass
from functools import partial

import orjson

from benchmarks.serve.connection import ConnectionPool, Endpoint
from benchmarks.serve.outcome import Outcome
from benchmarks.serve.schedule import Read, Send, send_on_time
from benchmarks.serve.stream import CompletionStream
from benchmarks.serve.workload import Request, WorkloadSpec, make_workload

DEFAULT_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """One run of one workload.

    Attributes:
        outcomes: in order of arrival.
        started_s: when their times count from, by `time.perf_counter`.
        wall_s: from the first request sent to the last answer over.
        client_cpu_share: CPU seconds of this process per second until all answers were read (1.0 is one core).
    """

    spec: WorkloadSpec
    outcomes: tuple[Outcome, ...]
    started_s: float
    wall_s: float
    client_cpu_share: float


class CompletionClient:
    """Streams completions of fixed length from one model at one endpoint: greedy ones, or `n` samples of each."""

    def __init__(self, url: str, *, model: str, api_key: str = "", timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.model = model
        self.timeout_s = timeout_s
        self.endpoint = Endpoint.from_url(url)
        self._api_key = api_key
        self._pool = ConnectionPool(self.endpoint)

    async def run(self, spec: WorkloadSpec) -> LoadResult:
        """Send the workload and wait for every answer."""
        sends = [(request.arrival_s, self.prepare(request)) for request in make_workload(spec)]
        start_s, cpu_start_s = time.perf_counter(), time.process_time()
        outcomes = await send_on_time(sends)
        cpu_s = time.process_time() - cpu_start_s
        wall_s = max(outcome.finished_s for outcome in outcomes)
        return LoadResult(
            spec=spec,
            outcomes=outcomes,
            started_s=start_s,
            wall_s=wall_s,
            client_cpu_share=cpu_s / (time.perf_counter() - start_s),
        )

    def prepare(self, request: Request) -> Send:
        """Build the HTTP request now, so that no clock sees it being built."""
        return partial(self._send, request, self._message(request))

    async def is_ready(self, path: str) -> bool:
        """Whether GET `path` answers 200."""
        message = f"GET {path} HTTP/1.1\r\nHost: {self.endpoint.host}\r\n\r\n".encode()
        try:
            async with asyncio.timeout(5):
                return await self._pool.exchange(message, reader=lambda _: None) == 200
        except OSError:
            return False

    def close(self) -> None:
        self._pool.close()

    async def _send(self, request: Request, message: bytes, start_s: float) -> Read:
        def clock() -> float:
            return time.perf_counter() - start_s

        stream = CompletionStream(clock)
        sent_s = clock()
        status, error = await self._stream(message, stream)
        finished_s = clock()

        def read() -> Outcome:
            stream.read()
            refusal = f"HTTP {status}: {stream.error}" if status != 200 else ""
            return Outcome(
                request=request,
                sent_s=sent_s,
                finished_s=finished_s,
                token_times_s=tuple(stream.token_times_s),
                num_tokens=stream.num_tokens or 0,
                error=error or refusal or fault_in(stream, request),
                text="".join(stream.texts),
            )

        return read

    async def _stream(self, message: bytes, stream: CompletionStream) -> tuple[int, str]:
        """Run the exchange; returns its status, and what went wrong with it, empty if nothing."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._pool.exchange(message, reader=stream.feed), ""
        except TimeoutError:
            return 0, f"no complete answer within {self.timeout_s:g} s"
        except OSError as fault:
            return 0, str(fault)

    def _message(self, request: Request) -> bytes:
        """The HTTP request, built before the clock starts."""
        body = orjson.dumps(
            {
                "model": self.model,
                "prompt": request.prompt_token_ids,
                "max_tokens": request.num_output_tokens,
                "n": request.n,
                "temperature": 0 if request.n == 1 else 1,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        authorization = f"Authorization: Bearer {self._api_key}\r\n" if self._api_key else ""
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: {self.endpoint.host}:{self.endpoint.port}\r\n{authorization}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def fault_in(stream: CompletionStream, request: Request) -> str:
    """What is wrong with a stream that ended by itself; the usage it reports is checked against its events."""
    asked, told, num_events = request.num_output_tokens * request.n, stream.num_tokens, len(stream.token_times_s)
    if stream.error:
        return stream.error
    if not stream.done:
        return "the stream ended without [DONE]"
    if told is None:
        return "the stream carried no usage"
    if told != asked:
        return f"{told} output tokens instead of {asked}"
    if not 0 < num_events <= told:
        return f"usage tells {told} output tokens, {num_events} events carried text"
    return ""
