"""Seconds over sizes, linear between points: Alpa's model of communication."""

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecewiseLinear:
    """Never falls. Below the first size its seconds, beyond the last the slope of the last piece.

    Attributes:
        sizes: rising; bytes or tokens.
        seconds: of each size, not falling.
        relative_error: median over what it was fitted to, each judged without itself; 0.1 is 10 %.
    """

    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    relative_error: float = 0.0

    def at(self, size: float) -> float:
        if size <= self.sizes[0] or len(self.sizes) == 1:
            return self.seconds[0]
        above = min(bisect_right(self.sizes, size), len(self.sizes) - 1)
        low, high = self.sizes[above - 1], self.sizes[above]
        share = (size - low) / (high - low)
        return self.seconds[above - 1] + share * (self.seconds[above] - self.seconds[above - 1])
