"""How long an engine's steps take by the number of their tokens, learned while they run."""

from bisect import bisect_left

# Something else on the machine may hold a step up, nothing makes one too quick: so quick ones count for more.
_RATE_DOWN = 0.5
_RATE_UP = 0.1


class StepTimes:
    """A line through the mean time of the steps of 1, 2 to 3, 4 to 7, ... tokens.

    Below the smallest steps seen it goes on to zero, as if there were no fixed cost: who bounds steps by it makes them
    rather too short at first, sees how long short ones take, and is right from then on.
    """

    def __init__(self) -> None:
        self._means: dict[int, tuple[float, float]] = {}  # by the bits of the number of tokens: (tokens, seconds)
        self._line: list[tuple[float, float]] | None = None

    def observe(self, num_tokens: int, duration_s: float) -> None:
        """Notes a step that has been done."""
        if num_tokens < 1:
            return
        key = num_tokens.bit_length()
        mean_tokens, mean_s = self._means.get(key, (num_tokens, duration_s))
        rate = _RATE_DOWN if duration_s < mean_s else _RATE_UP
        self._means[key] = mean_tokens + rate * (num_tokens - mean_tokens), mean_s + rate * (duration_s - mean_s)
        self._line = None

    def predict_s(self, num_tokens: float) -> float:
        """Returns what a step of so many tokens takes, in seconds; no less than a smaller one."""
        line = self._points()
        index = min(bisect_left(line, (num_tokens, 0.0)), len(line) - 1)
        if index == 0:
            return 0.0
        (start, start_s), (end, end_s) = line[index - 1], line[index]
        return start_s + (end_s - start_s) / (end - start) * (num_tokens - start)

    def _points(self) -> list[tuple[float, float]]:
        """The line's corners, (tokens, seconds), ascending in both."""
        if self._line is None:
            highest_s = 0.0
            self._line = [(0.0, 0.0)]
            for tokens, seconds in sorted(self._means.values()):
                highest_s = max(highest_s, seconds)
                self._line.append((tokens, highest_s))
        return self._line
