"""Time for an engine: a real clock, and one that only moves when it is told to."""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the seconds since it was made."""

    def __call__(self) -> float: ...

    def wait_until(self, time_s: float) -> None:
        """Returns at `time_s` or, if that is past, at once."""


class WallClock:
    """The machine's own time."""

    def __init__(self) -> None:
        self._start_s = time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter() - self._start_s

    def wait_until(self, time_s: float) -> None:
        time.sleep(max(0.0, time_s - self()))


class VirtualClock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def wait_until(self, time_s: float) -> None:
        self.now_s = max(self.now_s, time_s)
