"""Measures how fast blocks come from other workers."""

from collections.abc import Callable

_WEIGHT = 0.3
_MIN_BYTES = 256 * 1024
_VALID_S = 60.0


class FetchRate:
    """A moving mean of bytes per second. A fetch of little says nothing: its time is the calls'.

    It is forgotten after a minute without a fetch, lest one slow fetch be the last.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._bytes_per_s = 0.0
        self._until_s = 0.0

    def observe(self, num_bytes: int, *, seconds: float) -> None:
        """Takes a fetch in."""
        if num_bytes < _MIN_BYTES:
            return
        before, latest = self.bytes_per_s, num_bytes / max(seconds, 1e-6)
        self._bytes_per_s = before + _WEIGHT * (latest - before) if before else latest
        self._until_s = self._clock() + _VALID_S

    @property
    def bytes_per_s(self) -> float:
        """0 where nothing came lately."""
        return self._bytes_per_s if self._clock() < self._until_s else 0.0
