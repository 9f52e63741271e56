"""How often a key is used: a bucket that holds a minute's requests and fills evenly."""

from collections.abc import Callable


class RequestRate:
    """Counts requests against a bound.

    Attributes:
        per_minute: requests that may come in a minute; as many may come at once after a minute without any.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, per_minute: int, *, clock: Callable[[], float]) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._num_left = float(per_minute)
        self._counted_at_s = clock()

    def take(self) -> float:
        """Counts a request, and returns 0; or the seconds after which there is one left, and counts nothing."""
        now_s, per_s = self._clock(), self.per_minute / 60
        self._num_left = min(self.per_minute, self._num_left + (now_s - self._counted_at_s) * per_s)
        self._counted_at_s = now_s
        if self._num_left < 1:
            return (1 - self._num_left) / per_s
        self._num_left -= 1
        return 0.0
