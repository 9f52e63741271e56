"""Wall-clock time by part, for code that knows nothing of it."""

import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Stopwatch:
    """Adds up the time that parts take. What a part calls counts for the part called, not for the caller.

    Attributes:
        seconds: by part, since the last `reset`.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._clock = clock
        self._parts: list[str] = []
        self._since_s = 0.0

    def reset(self) -> None:
        self.seconds.clear()

    def timed(self, part: str, function: Callable[P, R]) -> Callable[P, R]:
        """The function, its time counted for the part."""

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            self._switch()
            self._parts.append(part)
            try:
                return function(*args, **kwargs)
            finally:
                self._switch()
                self._parts.pop()

        return call

    def hand_over(self, part: str, seconds: float) -> None:
        """Of the time that counts for the part that is on, some is another's."""
        self.seconds[self._parts[-1]] -= seconds
        self.seconds[part] += seconds

    def _switch(self) -> None:
        now_s = self._clock()
        if self._parts:
            self.seconds[self._parts[-1]] += now_s - self._since_s
        self._since_s = now_s
