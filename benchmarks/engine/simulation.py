"""Simulates normalised latency over request rate: the real engine on a simulated runner and a virtual clock."""

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
MIN_REQUESTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The result of serving a dataset: mean normalised latency in s/token, and the number of preemptions."""

    normalised_latency_s: float
    num_preemptions: int


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
        """Makes a new engine; `observe` sees each batch before it is computed."""
        runner: Runner = SimulatedRunner(self.latency, clock=clock, copy_block_s=self.copy_block_s)
        if observe is not None:
            runner = ObservedRunner(runner, observe=observe)
        blocks = None if self.make_blocks is None else self.make_blocks()
        return Engine(self.config, runner=runner, clock=clock, blocks=blocks)

    def token_s(self) -> float:
        """Seconds per token of a sequence that is alone."""
        return self.latency.decode_s(num_decodes=1, context_tokens=0)

    def serve(self, dataset: Dataset, *, rate_per_s: float, num_lifetimes: float) -> Service:
        """Serves one trace.

        Args:
            num_lifetimes: how long the trace is, in times that a mean request takes when it is alone.
        """
        clock = VirtualClock()
        engine = self.engine(clock)
        trace_s = num_lifetimes * dataset.output_mean * self.token_s()
        num_requests = max(MIN_REQUESTS, round(rate_per_s * trace_s))
        requests = make_workload(dataset.workload(num_requests, seed=SEED, rate_per_s=rate_per_s))
        latencies_s = [each.normalised_latency_s for each in serve(engine, requests, clock=clock)]
        return Service(normalised_latency_s=fmean(latencies_s), num_preemptions=engine.stats().num_preemptions)

    def sustained_rate_per_s(self, dataset: Dataset, *, bound_s: float, num_lifetimes: float) -> float:
        """The highest rate, to within 3 %, at which the normalised latency stays below the bound."""

        def is_sustained(rate_per_s: float) -> bool:
            service = self.serve(dataset, rate_per_s=rate_per_s, num_lifetimes=num_lifetimes)
            return service.normalised_latency_s <= bound_s

        low, high = 0.0, 1 / (dataset.output_mean * self.token_s())
        while is_sustained(high):
            low, high = high, 2 * high
        low = low or high / 64
        while high / low > PRECISION:
            middle = (low * high) ** 0.5
            low, high = (middle, high) if is_sustained(middle) else (low, middle)
        return low
