"""The time that emulated devices live in."""

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WallClock:
    """The clock of this machine."""

    def now_s(self) -> float:
        return time.perf_counter()

    def sleep_until(self, due_s: float) -> None:
        """Returns at `due_s`, at once if that has passed."""
        if (left_s := due_s - time.perf_counter()) > 0:
            time.sleep(left_s)
