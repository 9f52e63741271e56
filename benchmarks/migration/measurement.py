"""One stream that moves while it runs, the same one undisturbed, and a prompt as long that nobody holds."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

import httpx

from headway.cli.running import calling_kvcache
from headway.core.move import RequestMove
from headway.rpc.convert import from_pb
from headway.v1 import kvcache_pb2, kvcache_pb2_grpc

_FIRST_TOKEN_ID, _END_TOKEN_ID = 300, 30_000
_OUTPUT_BEFORE, _OUTPUT_AFTER = 48, 208
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """The times of one move.

    Attributes:
        pause_s: the longest time between two tokens, from when the move was asked for.
        gap_s: the median time between two tokens before that.
        recompute_s: time to first token of a prompt as long as the sequence was, which nobody holds.
        is_equal: whether the stream is that of a run without a move.
    """

    num_context_tokens: int
    num_blocks: int
    num_bytes: int
    move_s: float
    pause_s: float
    gap_s: float
    recompute_s: float
    is_equal: bool


@dataclass(slots=True)
class _Stream:
    text: str = ""
    token_times_s: list[float] = field(default_factory=list)


class MigrationDriver:
    """Asks a stack of two workers at `url` for streams, and for moves."""

    def __init__(self, url: str, *, model: str, state_dir: Path, seed: int) -> None:
        self._url = url
        self._model = model
        self._state_dir = state_dir
        self._draw = random.Random(seed)

    async def measure(self, num_context_tokens: int, *, num_others: int) -> Migration:
        """Moves one stream, beside `num_others` short ones that run all the time.

        Args:
            num_context_tokens: prompt and output tokens of the stream when it is asked to move.
        """
        kvcache_stub = await asyncio.to_thread(calling_kvcache, self._state_dir, api_key=None)
        async with (
            httpx.AsyncClient(base_url=self._url, timeout=_TIMEOUT_S) as http,
            kvcache_stub as kvcache,
        ):
            others = [asyncio.create_task(self._keep_busy(http)) for _ in range(num_others)]
            try:
                return await self._measure(http, kvcache, num_context_tokens)
            finally:
                for other in others:
                    other.cancel()
                await asyncio.gather(*others, return_exceptions=True)

    async def _measure(
        self, http: httpx.AsyncClient, kvcache: "kvcache_pb2_grpc.KvCacheServiceAsyncStub", num_context_tokens: int
    ) -> Migration:
        prompt, other_prompt = (self._prompt(num_context_tokens - _OUTPUT_BEFORE) for _ in range(2))
        request_id = f"moved-{self._draw.randrange(1 << 32):08x}"
        stream = _Stream()
        moving: asyncio.Task[RequestMove] | None = None
        asked_s = moved_s = 0.0

        async def move() -> RequestMove:
            nonlocal moved_s
            done = await _move(kvcache, request_id)
            moved_s = time.perf_counter()
            return done

        async for text in self._tokens(http, prompt, _OUTPUT_BEFORE + _OUTPUT_AFTER, request_id=request_id):
            stream.text += text
            stream.token_times_s.append(time.perf_counter())
            if moving is None and len(stream.token_times_s) == _OUTPUT_BEFORE:
                asked_s, moving = time.perf_counter(), asyncio.create_task(move())
        assert moving is not None, "the stream is long enough"
        done = await moving
        undisturbed = [text async for text in self._tokens(http, prompt, _OUTPUT_BEFORE + _OUTPUT_AFTER)]
        started_s = time.perf_counter()
        async for _ in self._tokens(http, other_prompt, 1):
            break
        recompute_s = time.perf_counter() - started_s
        times_s = stream.token_times_s
        gaps_s = [after - before for before, after in pairwise(times_s)]
        return Migration(
            num_context_tokens=num_context_tokens,
            num_blocks=done.num_blocks,
            num_bytes=done.num_bytes,
            move_s=moved_s - asked_s,
            pause_s=max(gaps_s[_OUTPUT_BEFORE - 1 :]),
            gap_s=median(gaps_s[: _OUTPUT_BEFORE - 1]),
            recompute_s=recompute_s,
            is_equal=stream.text == "".join(undisturbed),
        )

    async def _keep_busy(self, http: httpx.AsyncClient) -> None:
        while True:
            async for _ in self._tokens(http, self._prompt(64), 128):
                pass

    def _prompt(self, num_tokens: int) -> list[int]:
        return [self._draw.randrange(_FIRST_TOKEN_ID, _END_TOKEN_ID) for _ in range(num_tokens)]

    async def _tokens(
        self, http: httpx.AsyncClient, prompt: list[int], num_tokens: int, *, request_id: str = ""
    ) -> AsyncIterator[str]:
        """Yields the text of each token, greedy, as it comes."""
        body = {"model": self._model, "prompt": prompt, "max_tokens": num_tokens, "temperature": 0}
        body |= {"ignore_eos": True, "stream": True}
        headers = {"x-request-id": request_id} if request_id else {}
        async with http.stream("POST", "/v1/completions", json=body, headers=headers) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    yield json.loads(line.removeprefix("data: "))["choices"][0]["text"]


async def _move(kvcache: "kvcache_pb2_grpc.KvCacheServiceAsyncStub", request_id: str) -> RequestMove:
    description = kvcache_pb2.DescribeRequestRequest(request_id=request_id)
    (part,) = (await kvcache.DescribeRequest(description)).parts
    target = {"worker-0": "worker-1", "worker-1": "worker-0"}[part.worker_id]
    request = kvcache_pb2.MoveRequestRequest(request_id=request_id, worker_id=target)
    (move,) = (await kvcache.MoveRequest(request, timeout=_TIMEOUT_S)).moves
    return from_pb(move, RequestMove)
