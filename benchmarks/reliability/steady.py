"""Requests that come at a steady rate, and what their clients see of the answers."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from benchmarks.serve.client import CompletionClient
from benchmarks.serve.outcome import Outcome
from benchmarks.serve.schedule import send_on_time
from benchmarks.serve.summary import Spread, failures_by_cause
from benchmarks.serve.workload import Request, WorkloadSpec, make_workload

SHORT = WorkloadSpec(num_requests=1, vocab_size=500, prompt_mean=32, prompt_sigma=0.0, output_mean=32, output_sigma=0.0)
"""One request of 32 tokens in and 32 out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What clients saw of their requests.

    Attributes:
        errors: how often each was met.
        latency_s: from sending a request to the last token of its answer, of whole answers.
        pause_s: the longest that each of these waited for its first token, or from one to the next.
    """

    num_requests: int
    errors: dict[str, int]
    latency_s: Spread
    pause_s: Spread

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> "Seen":
        every = list(outcomes)
        whole = [each for each in every if not each.error]
        return cls(
            num_requests=len(every),
            errors=failures_by_cause(every),
            latency_s=Spread.of(each.latency_s for each in whole),
            pause_s=Spread.of(longest_pause_s(each) for each in whole),
        )

    @property
    def num_errors(self) -> int:
        return sum(self.errors.values())


def longest_pause_s(outcome: Outcome) -> float:
    """For the first token, or from one to the next; the client's own delay is not counted."""
    return max((outcome.ttft_s, *outcome.gaps_s))


def steady(spec: WorkloadSpec, *, rate_per_s: float, seconds: float, seed: int = 0) -> WorkloadSpec:
    """Requests like `spec`'s at this rate for so long."""
    return replace(spec, num_requests=max(1, round(rate_per_s * seconds)), rate_per_s=rate_per_s, seed=seed)


async def capacity_per_s(client: CompletionClient, spec: WorkloadSpec, *, num_clients: int, seconds: float) -> float:
    """Whole answers a second where so many clients ask again as soon as they are answered."""
    requests = make_workload(replace(spec, num_requests=num_clients, rate_per_s=None, seed=1))
    started_s = time.perf_counter()

    async def ask(request: Request) -> int:
        num_answered = 0
        while time.perf_counter() - started_s < seconds:
            outcome = (await client.prepare(request)(time.perf_counter()))()
            num_answered += not outcome.error
        return num_answered

    num_answered = sum(await asyncio.gather(*map(ask, requests)))
    return num_answered / (time.perf_counter() - started_s)


async def num_wrong(client: CompletionClient, outcomes: Iterable[Outcome]) -> int:
    """How many of these have another text than when they are asked again now."""
    checked = [each for each in outcomes if not each.error]
    again = await send_on_time([(0.0, client.prepare(each.request)) for each in checked])
    return sum(first.text != second.text for first, second in zip(checked, again, strict=True))
