"""Timing a call that is too short for the clock."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

_ROUND_S = 0.006
_MIN_ROUNDS = 3
_MAX_ROUNDS = 7
_BUDGET_S = 0.06


@dataclass(frozen=True, slots=True)
class Timer:
    """Attributes:
    clock: seconds, from any start.
    wait: returns when the device has done what was called.
    """

    clock: Callable[[], float]
    wait: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, device: torch.device, *, num_threads: int) -> "Timer":
        """A single thread's own time does not count what others did on its core; otherwise the time that went by."""
        if device.type == "cuda":
            return cls(time.perf_counter, torch.cuda.synchronize)
        return cls(time.thread_time if num_threads == 1 else time.perf_counter)

    def time(self, call: Callable[[], object]) -> tuple[float, float]:
        """Seconds of one call in the quickest round, and by how much the median round was slower."""
        self.rounds(call, 1)  # allocates and prepares
        once_s = max(self.rounds(call, 1), 1e-9)
        number = max(1, math.ceil(_ROUND_S / once_s))
        num_rounds = min(_MAX_ROUNDS, max(_MIN_ROUNDS, int(_BUDGET_S / (number * once_s))))
        seconds = [self.rounds(call, number) for _ in range(num_rounds)]
        quickest_s = min(seconds)
        return quickest_s, median(seconds) / quickest_s - 1

    def rounds(self, call: Callable[[], object], number: int) -> float:
        """Seconds of one of `number` calls in a row."""
        started_s = self.clock()
        for _ in range(number):
            call()
        self.wait()
        return (self.clock() - started_s) / number
