"""Seconds over several extents, multilinear in the logarithms of all between the points of a complete grid."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from statistics import median


@dataclass(frozen=True)
class Lattice:
    """Attributes:
    axes: rising extents, one sequence for each dim.
    log_seconds: logarithm of the seconds of every combination of them.
    """

    axes: tuple[tuple[int, ...], ...]
    log_seconds: Mapping[tuple[int, ...], float]

    @classmethod
    def through(cls, seconds: Mapping[tuple[int, ...], float]) -> "Lattice":
        """KeyError, with the extents, where a combination is missing."""
        num_dims = len(next(iter(seconds)))
        axes = tuple(tuple(sorted({extents[dim] for extents in seconds})) for dim in range(num_dims))
        return cls(axes, {extents: math.log(seconds[extents]) for extents in product(*axes)})

    def at(self, extents: Sequence[float]) -> float:
        """Below an axis as at its lowest extent; above it in proportion to the extent."""
        factor = 1.0
        places: list[tuple[int, int, float]] = []
        for extent, axis in zip(extents, self.axes, strict=True):
            factor *= max(1.0, extent / axis[-1])
            places.append(_place(min(max(extent, axis[0]), axis[-1]), axis))
        return factor * math.exp(self._between(places))

    def has_room_for(self, extents: Sequence[float], *, start: int = 0) -> bool:
        """Whether none of them, of the axes from `start`, is beyond its axis."""
        return all(extent <= axis[-1] for extent, axis in zip(extents, self.axes[start:], strict=True))

    def _between(self, places: Sequence[tuple[int, int, float]]) -> float:
        total = 0.0
        for corner in product(*(((low, 1 - share), (high, share)) for low, high, share in places)):
            weight = math.prod(share for _, share in corner)
            if weight:
                total += weight * self.log_seconds[tuple(extent for extent, _ in corner)]
        return total

    @cached_property
    def relative_error(self) -> float:
        """Median over points that lie between others on an axis, each judged by its two neighbours there."""
        errors = []
        for extents, known in self.log_seconds.items():
            for dim, axis in enumerate(self.axes):
                number = axis.index(extents[dim])
                if 0 < number < len(axis) - 1:
                    low, high = axis[number - 1], axis[number + 1]
                    share = math.log(extents[dim] / low) / math.log(high / low)
                    ends = [self.log_seconds[(*extents[:dim], end, *extents[dim + 1 :])] for end in (low, high)]
                    errors.append(abs(math.exp((1 - share) * ends[0] + share * ends[1] - known) - 1))
        return median(errors) if errors else 0.0


def _place(extent: float, axis: tuple[int, ...]) -> tuple[int, int, float]:
    """The points around it, and how far it is from the first to the second, in logarithms."""
    above = min(bisect_right(axis, extent), len(axis) - 1)
    low, high = axis[max(above - 1, 0)], axis[above]
    return low, high, 0.0 if low == high else math.log(extent / low) / math.log(high / low)
