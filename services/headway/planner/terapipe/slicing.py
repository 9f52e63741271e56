"""Cuts a mini-batch into slices along sequences and tokens, so that the pipeline's iteration is shortest. Exact, in the
steps of its table (dissertation sections 2.3.3 and 2.3.4). Pure.

Instead of all bounds on the slowest slice only those are tried that can lead to something better: with S the least sum
under the last bound, a better scheme's slowest slice takes less than (T - S) / (K - 1), and less than the slowest one
of what was found under the last bound.
"""

from dataclasses import dataclass

import numpy as np

from headway.core.errors import InvalidArgumentError
from headway.planner.terapipe.kernel import Floats, Ints, least_batch, least_bottleneck, least_sums
from headway.planner.terapipe.scheme import BatchSlice, Scheme, SliceTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Slicing:
    """A scheme and what it takes.

    Attributes:
        num_bounds: how many bounds were tried.
    """

    scheme: Scheme
    iteration_s: float
    num_bounds: int


def slice_batch(times: SliceTimes, batch: int) -> Slicing | None:
    """Finds the scheme with the shortest iteration; None where the table has no time for any.

    Args:
        batch: sequences of an iteration, of one data-parallel replica.
    """
    if batch < 1:
        raise InvalidArgumentError(f"batch is {batch}.", hint="Give 1 or more sequences.", field="batch")
    search = _Search(times, batch)
    found = search.run()
    return (
        None if found is None else Slicing(scheme=found.scheme, iteration_s=found.iteration_s, num_bounds=search.tried)
    )


@dataclass(frozen=True, slots=True)
class _Found:
    scheme: Scheme
    sum_s: float
    slowest_s: float
    iteration_s: float


class _Search:
    """The search on one table."""

    def __init__(self, times: SliceTimes, batch: int) -> None:
        self._times = times
        self._batch = batch
        self._by_end = _by_end(times.seconds[:batch])
        self.tried = 0

    def run(self) -> _Found | None:
        floor_s = least_bottleneck(self._by_end, self._batch)
        if not np.isfinite(floor_s):
            return None
        best = self._under(floor_s)
        bound_s = self._next(best, least_s=self._under(np.inf).sum_s)
        while bound_s >= floor_s:
            found = self._under(bound_s)
            if found.iteration_s < best.iteration_s:
                best = found
            bound_s = min(np.nextafter(found.slowest_s, 0), self._next(best, least_s=found.sum_s))
        return best

    def _next(self, best: _Found, *, least_s: float) -> float:
        """The bound that the slowest slice of any better scheme stays below."""
        gain_s = best.iteration_s - self._times.once_s - least_s
        later = self._times.num_stages - 1
        if later == 0:
            return np.inf if gain_s > 0 else 0.0
        return float(np.nextafter(gain_s / later, 0))

    def _under(self, bound_s: float) -> _Found:
        """The scheme with the least sum whose slices take no longer than that."""
        self.tried += 1
        least, slices = least_sums(self._by_end, bound_s)
        _, counts = least_batch(np.ascontiguousarray(least[:, -1]), self._batch)
        scheme = tuple(
            part
            for number, count in enumerate(counts.tolist())
            for part in (BatchSlice(number + 1, self._tokens(slices[number])),) * count
            if count
        )
        seconds = self._times.of(scheme)
        return _Found(scheme, float(seconds.sum()), float(seconds.max()), self._times.iteration_s(scheme))

    def _tokens(self, slices: Ints) -> tuple[int, ...]:
        found: list[int] = []
        end = len(slices) - 1
        while end and slices[end]:
            found.insert(0, int(slices[end]) * self._times.step)
            end -= int(slices[end])
        return tuple(found)


def _by_end(seconds: Floats) -> Floats:
    """[sequences, end, slice] out of [sequences, slice, context], so that a slice's rows are read in order."""
    num_steps = seconds.shape[1]
    size, end = np.meshgrid(np.arange(num_steps), np.arange(num_steps))
    begin = end - size
    found = seconds[:, size, np.maximum(begin, 0)]
    return np.ascontiguousarray(np.where(begin >= 0, found, np.inf))
