"""How much later than predicted first tokens reach the gateway. Pure.

The latency model predicts steps. On top of them come the way from the lease to the worker and back, queues of the
processes between, and what the forecast leaves out of a step. What past requests took beyond it is added to the next.
"""

from bisect import insort
from collections import deque
from dataclasses import dataclass, field

_QUANTILE = 0.98
_NUM_KEPT = 128
_HALF_LIFE_S = 30.0


@dataclass(slots=True)
class Lateness:
    """An upper quantile of what a place's latest first tokens took beyond the forecast. It fades while none come, so
    that a place which was held up once, and refuses everybody since, is tried again."""

    _latest: deque[float] = field(default_factory=lambda: deque(maxlen=_NUM_KEPT))
    _sorted: list[float] = field(default_factory=list)
    _observed_s: float = 0.0

    @property
    def max_without_token(self) -> int:
        """How many requests with objectives may be without their first token: one, and two more for each that was seen.

        A burst to a place of which nothing is known comes in waves, as in the slow start of TCP (RFC 5681, section
        3.1): each learns from the one before how late first tokens are there.
        """
        return 1 + 2 * len(self._latest)

    def observe(self, late_s: float, *, now_s: float) -> None:
        """A first token came so much later than the model predicted, or sooner if it is negative."""
        if len(self._latest) == _NUM_KEPT:
            self._sorted.remove(self._latest[0])
        self._latest.append(late_s)
        insort(self._sorted, late_s)
        self._observed_s = now_s

    def margin_s(self, *, now_s: float) -> float:
        """To be added to a forecast; 0 while nothing was late."""
        if not self._sorted:
            return 0.0
        late_s = self._sorted[int(_QUANTILE * (len(self._sorted) - 1) + 0.5)]
        kept: float = 0.5 ** ((now_s - self._observed_s) / _HALF_LIFE_S)
        return max(0.0, late_s) * kept
