"""Normalised latency over request rate, of the real engine on a simulated runner and a virtual clock."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from benchmarks.engine.clock import VirtualClock
from benchmarks.engine.dataset import Dataset
from benchmarks.engine.runner import Observe, ObservedRunner, SimulatedRunner
from benchmarks.engine.service import serve
from benchmarks.serve.workload import make_workload
from headway.core.latency import LatencyModel
from headway.engine.batch import Runner
from headway.engine.block_manager import BlockManager
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine

SEED = 3
PRECISION = 1.03
FIRST_RATE_PER_S = 0.25
MAX_RATE_PER_S = 1e5


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """An engine to be loaded, and how long its steps take.

    Attributes:
        make_blocks: a block manager in place of the engine's own.
        copy_block_s: of one block between the tiers.
    """

    config: EngineConfig
    latency: LatencyModel
    make_blocks: Callable[[], BlockManager] | None = None
    copy_block_s: float = 0.0

    def engine(self, clock: VirtualClock, *, observe: Observe | None = None) -> Engine:
        """A new one; `observe` sees each batch before it is computed."""
        runner: Runner = SimulatedRunner(self.latency, clock=clock, copy_block_s=self.copy_block_s)
        if observe is not None:
            runner = ObservedRunner(runner, observe=observe)
        blocks = None if self.make_blocks is None else self.make_blocks()
        return Engine(self.config, runner=runner, clock=clock, blocks=blocks)

    def normalised_latency_s(self, dataset: Dataset, *, rate_per_s: float, num_requests: int) -> float:
        """Mean over all requests. Other rates stretch the same arrivals of the same requests."""
        clock = VirtualClock()
        requests = make_workload(dataset.workload(num_requests, seed=SEED, rate_per_s=rate_per_s))
        served = serve(self.engine(clock), requests, clock=clock)
        return fmean(each.normalised_latency_s for each in served)

    def sustained_rate_per_s(self, dataset: Dataset, *, bound_s: float, num_requests: int) -> float:
        """The highest rate, to within 3 %, at which the normalised latency stays below the bound.

        Raises ValueError if so few requests stay below it at any rate.
        """

        def is_sustained(rate_per_s: float) -> bool:
            latency_s = self.normalised_latency_s(dataset, rate_per_s=rate_per_s, num_requests=num_requests)
            return latency_s <= bound_s

        low, high = 0.0, FIRST_RATE_PER_S
        while is_sustained(high):
            low, high = high, 2 * high
            if high > MAX_RATE_PER_S:
                raise ValueError(f"{num_requests} requests are answered in time at any rate: send more")
        if low == 0.0:
            low = high / 64
        while high / low > PRECISION:
            middle = (low * high) ** 0.5
            low, high = (middle, high) if is_sustained(middle) else (low, middle)
        return low
