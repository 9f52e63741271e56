"""The levels of stages whose devices are data parallel. Pure."""

from dataclasses import dataclass

import numpy as np

from headway.planner.graphpipe.chains import Chain, Fork, Loads
from headway.planner.graphpipe.kernel import Floats, Ints, run_levels, set_levels


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLevels:
    """Levels of data-parallel stages, by the sums of their operators; implements `tables.StageLevels`.

    Attributes:
        size: the micro-batch's, as a power of two.
        limits: seconds for each sample, bytes, bytes per second between and in stages, samples of an iteration.
        num_micro_batches: of an iteration.
        top: the most stages that a sample can go through.
        num_powers: stages have 1, 2, 4, ... devices, so many of these numbers.
    """

    size: int
    limits: Floats
    num_micro_batches: int
    top: int
    num_powers: int

    def of_chain(self, chain: Chain) -> tuple[Ints, Ints]:
        loads = chain.loads
        return run_levels(
            loads.seconds,
            loads.held,
            loads.crossing,
            self.size,
            self.limits,
            self.num_micro_batches,
            self.num_powers,
        )

    def of_fork(self, fork: Fork) -> tuple[Ints, Ints, Ints]:
        return self._of_sets(fork, fork.alone), self._of_sets(fork, fork.with_head), self._of_sets(fork, fork.with_tail)

    def _of_sets(self, fork: Fork, loads: Loads | None) -> Ints:
        if loads is None:
            return np.zeros((len(fork.groups), self.num_powers), np.int32)
        return set_levels(
            loads.seconds,
            loads.held,
            loads.crossing,
            self.size,
            self.limits,
            self.num_micro_batches,
            self.num_powers,
        )
