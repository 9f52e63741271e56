"""The same kind of request by two ways in turns, and how much longer the first takes to its first token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.serve.outcome import Outcome
from benchmarks.serve.schedule import Send, send_on_time
from benchmarks.serve.workload import Request, WorkloadSpec, make_workload

NUM_RESAMPLES = 2000
CONFIDENCE_PERCENT = 95

Prepare = Callable[[Request], Send]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure in seconds with its confidence interval."""

    value_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """The time that the longer way adds to the time to first token.

    Attributes:
        through_s, direct_s: TTFT of each complete request, by way.
        added_p50, added_p99: difference of the medians, and of the 99th percentiles.
        num_failures: requests of either way that were not answered.
    """

    through_s: tuple[float, ...]
    direct_s: tuple[float, ...]
    added_p50: Estimate
    added_p99: Estimate
    num_failures: int


async def alternate(spec: WorkloadSpec, *, through: Prepare, direct: Prepare) -> tuple[list[Outcome], list[Outcome]]:
    """Send one workload, every other request by the other way: both meet the same load."""
    ways = (through, direct)
    sends = [(request.arrival_s, ways[index % 2](request)) for index, request in enumerate(make_workload(spec))]
    outcomes = await send_on_time(sends)
    return list(outcomes[0::2]), list(outcomes[1::2])


def overhead(through: Sequence[Outcome], direct: Sequence[Outcome], *, seed: int = 0) -> Overhead:
    """Compares the two ways; raises ValueError when one of them has no complete request."""
    through_s, direct_s = complete_ttfts(through), complete_ttfts(direct)
    if not through_s.size or not direct_s.size:
        raise ValueError("no request was answered")
    return Overhead(
        through_s=tuple(through_s.tolist()),
        direct_s=tuple(direct_s.tolist()),
        added_p50=added(through_s, direct_s, percentile=50, seed=seed),
        added_p99=added(through_s, direct_s, percentile=99, seed=seed),
        num_failures=len(through) + len(direct) - through_s.size - direct_s.size,
    )


def complete_ttfts(outcomes: Sequence[Outcome]) -> NDArray[np.float64]:
    return np.array([outcome.ttft_s for outcome in outcomes if not outcome.error], dtype=np.float64)


def added(through_s: NDArray[np.float64], direct_s: NDArray[np.float64], *, percentile: float, seed: int) -> Estimate:
    """The difference of a percentile, with a bootstrap interval (both samples drawn anew, with replacement)."""
    generator = np.random.default_rng(seed)

    def resampled(sample_s: NDArray[np.float64]) -> NDArray[np.float64]:
        drawn = generator.choice(sample_s, size=(NUM_RESAMPLES, sample_s.size))
        return np.asarray(np.percentile(drawn, percentile, axis=1))

    tail = (100 - CONFIDENCE_PERCENT) / 2
    low_s, high_s = np.percentile(resampled(through_s) - resampled(direct_s), (tail, 100 - tail))
    value_s = np.percentile(through_s, percentile) - np.percentile(direct_s, percentile)
    return Estimate(float(value_s), float(low_s), float(high_s))
