"""Sends a burst of prompts to one worker, and counts how those that are admitted fare against their objective."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serve.client import CompletionClient
from benchmarks.serve.outcome import Outcome
from benchmarks.serve.workload import WorkloadSpec
from deploy.demo.stack import running_stack

MODEL_NAME = "burst"
REFUSED = "HTTP 429"


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Equal requests that come at once.

    Attributes:
        ttft_slo_s: their objective, by the gateway's clock and by the client's.
    """

    num_requests: int
    num_prompt_tokens: int
    num_output_tokens: int
    ttft_slo_s: float

    def workload(self, *, seed: int) -> WorkloadSpec:
        return WorkloadSpec(
            num_requests=self.num_requests,
            seed=seed,
            vocab_size=500,
            prompt_mean=self.num_prompt_tokens,
            prompt_sigma=0.0,
            output_mean=self.num_output_tokens,
            output_sigma=0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The outcome of a burst.

    Attributes:
        ttfts_s: of those that were admitted, as the client saw them, in order.
        num_met: number of those that were answered in time.
        errors: of those that were neither refused nor answered.
    """

    num_requests: int
    ttfts_s: tuple[float, ...]
    num_met: int
    errors: tuple[str, ...]

    @property
    def num_admitted(self) -> int:
        return len(self.ttfts_s)

    @property
    def attainment(self) -> float:
        """Share of the admitted requests that were in time."""
        return self.num_met / self.num_admitted if self.ttfts_s else 1.0


def measure(model: Path, burst: Burst, *options: str, num_bursts: int) -> list[Admission]:
    """Sends bursts one after the other, the first to a stack that has served nothing before.

    Args:
        options: of `headway up`.
    """
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        objective = ("--slo-ttft-ms", f"{1e3 * burst.ttft_slo_s:g}")
        with running_stack(Path(scratch), "--model", f"{MODEL_NAME}={model}", *objective, *options) as stack:
            return asyncio.run(_bursts(stack.http_url, burst, num_bursts))


async def _bursts(url: str, burst: Burst, num_bursts: int) -> list[Admission]:
    client = CompletionClient(url, model=MODEL_NAME)
    try:
        runs = [await client.run(burst.workload(seed=number)) for number in range(num_bursts)]
    finally:
        client.close()
    return [admission_of(run.outcomes, ttft_slo_s=burst.ttft_slo_s) for run in runs]


def admission_of(outcomes: Sequence[Outcome], *, ttft_slo_s: float) -> Admission:
    """Counts who was admitted, and who of those was in time."""
    answered = [outcome for outcome in outcomes if not outcome.error]
    ttfts_s = sorted(outcome.ttft_s for outcome in answered)
    return Admission(
        num_requests=len(outcomes),
        ttfts_s=tuple(ttfts_s),
        num_met=sum(ttft_s <= ttft_slo_s for ttft_s in ttfts_s),
        errors=tuple(each.error for each in outcomes if each.error and not each.error.startswith(REFUSED)),
    )
