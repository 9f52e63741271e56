"""Limits how often and how long something is retried without progress."""

import asyncio
from collections.abc import Callable

_MIN_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 1.0


class RetryDeadline:
    """The first retry comes at once, later ones after 0.1 s, doubling to 1 s.

    Args:
        clock: monotonic seconds.
    """

    __slots__ = ("_backoff_s", "_clock", "_started_s")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.renew()

    def renew(self) -> None:
        """Starts the deadline anew after progress."""
        self._started_s: float | None = None
        self._backoff_s = 0.0

    def exclude(self, duration_s: float) -> None:
        """Does not count the seconds that have just passed: somebody had what is retried."""
        if self._started_s is not None:
            self._started_s += duration_s

    async def wait(self, error: Exception, *, timeout_s: float) -> None:
        """Returns when it is time to try again; raises `error` when `timeout_s` have passed since the first call."""
        now_s = self._clock()
        if self._started_s is None:
            self._started_s = now_s
        if now_s - self._started_s >= timeout_s:
            raise error
        await asyncio.sleep(self._backoff_s)
        self._backoff_s = min(max(2 * self._backoff_s, _MIN_BACKOFF_S), _MAX_BACKOFF_S)
