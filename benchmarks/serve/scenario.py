"""The kinds of load that servers are compared under."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.serve.workload import PROMPT_MEAN, WorkloadSpec

MIN_REQUESTS = 16
NUM_PREFIX_REQUESTS = 32
SHARED_PREFIX_TOKENS = 512
TAIL_MEAN = 32.0  # prompt tokens behind the shared prefix
NUM_SAMPLED_REQUESTS = 16
SAMPLES = 4


class Load(StrEnum):
    """What a comparison may consist of."""

    BURST = "burst"
    PREFIX = "prefix"
    SAMPLES = "samples"
    RATES = "rates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of load: Poisson arrivals at a rate, or a burst."""

    rate_per_s: float | None
    num_requests: int
    output_sigma: float
    prompt_mean: float = PROMPT_MEAN
    shared_prefix_tokens: int = 0
    n: int = 1

    @property
    def title(self) -> str:
        return self.spec(0).title

    def spec(self, repeat: int) -> WorkloadSpec:
        """The workload of one repeat: other prompts each time, so that no prefix cache answers for the server."""
        rate_seed = 0 if self.rate_per_s is None else round(1000 * self.rate_per_s)
        kind_seed = 100_003 * (self.n - 1) + 200_003 * bool(self.shared_prefix_tokens)
        return WorkloadSpec(
            num_requests=self.num_requests,
            rate_per_s=self.rate_per_s,
            seed=1 + 1_000_003 * repeat + rate_seed + kind_seed,
            prompt_mean=self.prompt_mean,
            output_sigma=self.output_sigma,
            shared_prefix_tokens=self.shared_prefix_tokens,
            n=self.n,
        )


def scenarios(
    loads: Sequence[Load] = (Load.BURST, Load.RATES),
    *,
    rates: Sequence[float],
    burst: int,
    seconds: float,
    output_sigma: float,
) -> tuple[Scenario, ...]:
    """Bursts first, then each rate for about `seconds`."""
    found: list[Scenario] = []
    if Load.BURST in loads and burst:
        found.append(Scenario(rate_per_s=None, num_requests=burst, output_sigma=output_sigma))
    if Load.PREFIX in loads:
        found.append(
            Scenario(
                rate_per_s=None,
                num_requests=NUM_PREFIX_REQUESTS,
                output_sigma=output_sigma,
                prompt_mean=TAIL_MEAN,
                shared_prefix_tokens=SHARED_PREFIX_TOKENS,
            )
        )
    if Load.SAMPLES in loads:
        found.append(Scenario(rate_per_s=None, num_requests=NUM_SAMPLED_REQUESTS, output_sigma=output_sigma, n=SAMPLES))
    if Load.RATES in loads:
        found += [
            Scenario(
                rate_per_s=rate,
                num_requests=max(MIN_REQUESTS, math.ceil(rate * seconds)),
                output_sigma=output_sigma,
            )
            for rate in rates
        ]
    return tuple(found)
