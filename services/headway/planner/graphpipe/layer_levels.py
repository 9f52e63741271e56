"""The levels of stages of whole layers, sharded as the intra-operator pass finds best. Pure.

What a run of layers takes is no sum of what its layers take, and is known for runs in the layers' order alone: so only
sets of layers that are such a run can be a stage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from headway.planner.graphpipe.chains import Chain, Fork
from headway.planner.graphpipe.kernel import Floats, Ints
from headway.planner.graphpipe.series_parallel import Part, leaves


@dataclass
class LayerLevels:
    """Implements `tables.StageLevels`.

    Attributes:
        latency_s: [layers, layers, powers, variants]; of one micro-batch through the layers from the first to the last
            (both included), on 1, 2, 4, ... devices. Infinite where that is not possible.
        max_level: the same shape; micro-batches that memory has place for.
        bound_s: what no stage may take longer than.
        last: of each chain the elements of the last branch that is like it; see `ChainBuilder`.
        top: the most stages that a sample can go through.
    """

    latency_s: Floats
    max_level: Ints
    bound_s: float
    last: Mapping[int, Sequence[Part]]
    top: int

    def __post_init__(self) -> None:
        allowed = np.where(self.latency_s <= self.bound_s, self.max_level, 0)
        self._levels = np.ascontiguousarray(np.maximum(allowed.max(axis=3), 0), dtype=np.int32)

    @property
    def num_powers(self) -> int:
        return int(self.latency_s.shape[2])

    def of_chain(self, chain: Chain) -> tuple[Ints, Ints]:
        length = len(chain.elements)
        members = [leaves(element) for element in chain.elements]
        last = [leaves(element) for element in self.last[id(chain)]]
        levels = np.zeros((length, length + 1, self.num_powers), np.int32)
        for start in range(length):
            for stop, run in enumerate(accumulate(members[start:], lambda a, b: a + b), start + 1):
                levels[start, stop] = self._of(run)
            if chain.has_tail and start < length - 1:  # only the last branch is next to the operator behind the fork
                levels[start, length] = self._of([at for each in last[start:] for at in each])
        is_possible = np.asarray(levels.any(axis=2))
        stops = np.zeros((length, length + 1), np.int32)
        for start in range(length):
            possible = np.flatnonzero(is_possible[start])
            stops[start, : len(possible)] = possible
        return levels, stops

    def of_fork(self, fork: Fork) -> tuple[Ints, Ints, Ints]:
        head, tail = ([] if end is None else [end] for end in (fork.head, fork.tail))
        return (
            self._of_all(fork, fork.first),
            self._of_all(fork, [[*head, *each] for each in fork.first] if head else []),
            self._of_all(fork, [[*each, *tail] for each in fork.last] if tail else []),
        )

    def _of_all(self, fork: Fork, sets: Sequence[Sequence[int]]) -> Ints:
        found = np.zeros((len(fork.groups), self.num_powers), np.int32)
        for number, members in enumerate(sets):
            found[number] = self._of(members)
        return found

    def _of(self, members: Sequence[int]) -> Ints:
        first, last = min(members), max(members)
        if last - first + 1 != len(members):
            return np.zeros(self.num_powers, np.int32)
        found: Ints = self._levels[first, last]
        return found
