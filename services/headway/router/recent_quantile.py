"""An upper quantile of what was seen lately, which fades while nothing is seen. Pure."""

from bisect import insort
from collections import deque
from dataclasses import dataclass, field

_FADED = 0.5


@dataclass(slots=True)
class RecentQuantile:
    """Of the latest observations, by how much something exceeded what was foretold. It fades while none come, so that a
    place which was held up once, and refuses everybody since, is tried again.

    Attributes:
        share: of the observations that the quantile is above.
        half_life_s: in which it halves while none come.
        num_latest: observations that it is of, at most.
    """

    share: float
    half_life_s: float
    num_latest: int
    _latest: deque[float] = field(default_factory=deque)
    _sorted: list[float] = field(default_factory=list)
    _observed_at_s: float = 0.0

    @property
    def num_kept(self) -> int:
        return len(self._latest)

    def observe(self, excess: float, *, now_s: float) -> None:
        """Something exceeded the forecast by so much, or fell short of it if that is negative.

        After a long time without any it tells how things are now: those before it stay faded.
        """
        if self._sorted and (kept := self._kept(now_s)) < _FADED:
            self._latest = deque(kept * each for each in self._latest)
            self._sorted = sorted(self._latest)
        if len(self._latest) == self.num_latest:
            self._sorted.remove(self._latest.popleft())
        self._latest.append(excess)
        insort(self._sorted, excess)
        self._observed_at_s = now_s

    def value(self, *, now_s: float) -> float:
        """To be added to a forecast; 0 while nothing exceeded it."""
        if not self._sorted:
            return 0.0
        excess = self._sorted[int(self.share * (len(self._sorted) - 1) + 0.5)]
        return max(0.0, excess) * self._kept(now_s)

    def _kept(self, now_s: float) -> float:
        """The share that is left of what was seen until the latest observation."""
        kept: float = 0.5 ** ((now_s - self._observed_at_s) / self.half_life_s)
        return kept
