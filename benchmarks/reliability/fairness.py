"""Two tenants at one worker: how long the short requests of one take, alone and while the other floods it."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

import httpx

MODEL_NAME = "shared"
TENANTS = """
tenants:
  flood: {api_keys: [flood-key]}
  other: {api_keys: [other-key]}
"""
_TIMEOUT_S = 120.0
# Until the flood holds all places and waits in all queues.
_SETTLE_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """Requests that one tenant has under way all the time, each with `n` samples."""

    num_requests: int
    n: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Seconds from a request to the end of its answer, in the order of sending.

    Attributes:
        errors: of requests that were refused, or ended otherwise.
    """

    latencies_s: tuple[float, ...]
    errors: tuple[str, ...]

    @property
    def p50_s(self) -> float:
        return quantiles(self.latencies_s, n=100, method="inclusive")[49]

    @property
    def p99_s(self) -> float:
        return quantiles(self.latencies_s, n=100, method="inclusive")[98]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fairness:
    """Attributes:
    num_flood_tokens: that the flooding tenant got meanwhile: the other one must not cost it everything either.
    """

    alone: Latencies
    flooded: Latencies
    num_flood_tokens: int
    flooded_s: float

    @property
    def ratio(self) -> float:
        """How many times its lone latency the other tenant's p99 is."""
        return self.flooded.p99_s / self.alone.p99_s


async def measure(url: str, flood: Flood, *, num_requests: int, num_output_tokens: int) -> Fairness:
    """Short requests one after the other, first alone and then beside the flood."""
    probe = {"max_tokens": num_output_tokens}
    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, limits=httpx.Limits(max_connections=None)) as client:
        await _latencies(client, num_requests // 4 + 1, probe)  # warms up
        alone = await _latencies(client, num_requests, probe)
        counts = [0] * flood.num_requests
        tasks = [asyncio.create_task(_flood(client, flood, counts, index)) for index in range(flood.num_requests)]
        await asyncio.sleep(_SETTLE_S)
        num_before, started_s = sum(counts), time.perf_counter()
        flooded = await _latencies(client, num_requests, probe)
        flooded_s, num_flood_tokens = time.perf_counter() - started_s, sum(counts) - num_before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return Fairness(alone=alone, flooded=flooded, num_flood_tokens=num_flood_tokens, flooded_s=flooded_s)


async def _latencies(client: httpx.AsyncClient, num_requests: int, fields: dict[str, Any]) -> Latencies:
    latencies_s, errors = [], []
    for index in range(num_requests):
        started_s = time.perf_counter()
        answer = await client.post("/v1/completions", json=_body(index, fields), headers=key_of("other"))
        if answer.is_success:
            latencies_s.append(time.perf_counter() - started_s)
        else:
            errors.append(f"HTTP {answer.status_code}: {answer.text[:200]}")
    return Latencies(latencies_s=tuple(latencies_s), errors=tuple(errors))


async def _flood(client: httpx.AsyncClient, flood: Flood, counts: list[int], index: int) -> None:
    """One request after the other, as long as it is let; counts the events that bring its tokens."""
    fields = {"max_tokens": flood.num_output_tokens, "n": flood.n, "temperature": 1.0, "stream": True}
    for number in range(index, 1_000_000, flood.num_requests):
        async with client.stream(
            "POST", "/v1/completions", json=_body(number, fields), headers=key_of("flood")
        ) as answer:
            async for line in answer.aiter_lines():
                counts[index] += line.startswith("data: {")


def _body(index: int, fields: dict[str, Any]) -> dict[str, Any]:
    """No two prompts share a prefix, so that nothing is found in a cache."""
    prompt: Sequence[int] = [5 + index % 480, *range(10, 25)]
    return {"model": MODEL_NAME, "prompt": prompt, "ignore_eos": True, "temperature": 0.0, **fields}


def key_of(tenant: str) -> dict[str, str]:
    """The header by which a tenant of TENANTS is known."""
    return {"authorization": f"Bearer {tenant}-key"}
