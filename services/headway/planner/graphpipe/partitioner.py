"""Cuts a model into a graph of stages whose slowest is as fast as it can be (GraphPipe, algorithm 1). Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headway.planner.graphpipe.chains import ChainBuilder
from headway.planner.graphpipe.load_levels import LoadLevels
from headway.planner.graphpipe.pipeline import GraphPipeline, StageChoice, make_pipeline
from headway.planner.graphpipe.problem import PipelineProblem
from headway.planner.graphpipe.series_parallel import Part
from headway.planner.graphpipe.tables import Tables
from headway.planner.graphpipe.traceback import Traceback

_LESS = 1 - 1e-9  # sums round, so that what is faster must be so by more than that
_GAP = 1e-3  # the share by which bisection stops short of the optimum, which is then walked to


@dataclass
class Partitioner:
    """The search on one tree; `Series` of all operators makes it PipeDream's."""

    problem: PipelineProblem
    tree: Part

    def __post_init__(self) -> None:
        self._builder = ChainBuilder(self.problem)
        self._builder.root(self.tree)

    def fastest(self, micro_batch: int, *, below_s: float = np.inf) -> GraphPipeline | None:
        """The pipeline with the least time per sample; of these the shallowest. None where none is below a bound.

        Bisects until little is left, then asks for anything that is faster than what was found, until nothing is: so
        the result is exact.
        """
        if self._least_s(micro_batch) >= below_s:
            return None
        best = self._under(micro_batch, below_s * _LESS)
        if best is None:
            return None
        low, high = self._least_s(micro_batch), best.time_per_sample
        while high - low > _GAP * high:
            middle = (low + high) / 2
            found = self._under(micro_batch, middle)
            if found is None:
                low = middle
            else:
                best, high = found, found.time_per_sample
        while (found := self._under(micro_batch, best.time_per_sample * _LESS)) is not None:
            best = found
        return best

    def pipelines(self, micro_batch: int, bound_s: float) -> Iterator[GraphPipeline]:
        """Pipelines under a bound, one for each depth at which fewer devices are enough."""
        tables = self._tables(micro_batch, bound_s)
        needed = tables.fill().whole[1, 0]
        least = self.problem.num_devices + 1
        for begin, devices in enumerate(needed.tolist()):
            if devices < least:
                least = devices
                yield self._pipeline(Traceback(tables, self._builder.branches).stages(self.tree, begin), micro_batch)

    def _under(self, micro_batch: int, bound_s: float) -> GraphPipeline | None:
        return next(self.pipelines(micro_batch, bound_s), None)

    def _tables(self, micro_batch: int, bound_s: float) -> Tables:
        problem = self.problem
        limits = (
            bound_s,
            problem.memory_bytes,
            problem.handover_bytes_per_s,
            problem.sync_bytes_per_s,
            float(problem.batch),
        )
        bounds = LoadLevels(
            size=micro_batch.bit_length() - 1,
            limits=np.array(limits),
            num_micro_batches=problem.batch // micro_batch,
            top=min(problem.num_devices, problem.num_operators),
            num_powers=problem.num_devices.bit_length(),
        )
        return Tables(self._builder.order, bounds)

    def _least_s(self, micro_batch: int) -> float:
        """No pipeline is faster: all devices share the work as well as devices ever do, and no operator is cut."""
        problem = self.problem
        seconds = problem.forward_s + problem.backward_s
        size = micro_batch.bit_length() - 1
        powers = [p for p in range(problem.num_devices.bit_length()) if 0 <= size - p < problem.num_sizes]
        shared = np.array([seconds[:, size - power] / micro_batch for power in powers])
        devices = np.array([1 << power for power in powers])[:, None]
        return float(max((shared * devices).min(axis=0).sum() / problem.num_devices, shared.min(axis=0).max()))

    def _pipeline(self, choices: Sequence[StageChoice], micro_batch: int) -> GraphPipeline:
        return make_pipeline(self.problem, choices, micro_batch)
