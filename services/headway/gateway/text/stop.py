"""Stop strings, wherever tokens cut them."""

from collections.abc import Sequence
from functools import lru_cache


class StopScanner:
    """Lets text pass up to the first stop string, and holds back what may still become one.

    However the text is cut into pieces, the result is the same: the stop string that is complete first wins, and of
    two that end together the one that starts first. Each character is looked at about once for each stop string,
    whatever these are (Knuth, Morris, Pratt): texts that nearly are long stop strings cost no more than others.
    """

    __slots__ = ("_borders", "_held", "_includes_stop", "_nums_matched", "_stops")

    def __init__(self, stops: Sequence[str], *, includes_stop: bool = False) -> None:
        """`includes_stop` lets the stop string itself pass, too."""
        assert all(stops), "an empty stop string matches everywhere"
        self._stops = tuple(stops)
        self._includes_stop = includes_stop
        self._held = ""
        self._borders = tuple(map(_borders, stops))
        self._nums_matched = [0] * len(self._stops)  # how much of each the text ends with

    def push(self, text: str, *, num_exempt: int = 0) -> tuple[str, bool]:
        """The text that may go out, and whether a stop string was found behind it or at its end. Not to be called after
        that. None is found that ends within the first `num_exempt` characters of `text`."""
        num_before = len(self._held)
        ends = [self._advance(number, text, num_exempt) for number in range(len(self._stops))]
        text = self._held + text
        found = [
            (num_before + end, num_before + end - len(stop))
            for stop, end in zip(self._stops, ends, strict=True)
            if end is not None
        ]
        if found:
            self._held = ""
            end, start = min(found)
            return text[: end if self._includes_stop else start], True
        cut = len(text) - max(self._nums_matched)
        self._held = text[cut:]
        return text[:cut], False

    def _advance(self, number: int, text: str, num_exempt: int) -> int | None:
        """Looks at more text for one stop string; returns where in it that ends."""
        stop, borders, num_matched = self._stops[number], self._borders[number], self._nums_matched[number]
        if not num_matched and stop[0] not in text:
            return None
        for at, character in enumerate(text, start=1):
            while num_matched and stop[num_matched] != character:
                num_matched = borders[num_matched - 1]
            num_matched += stop[num_matched] == character
            if num_matched == len(stop):
                if at > num_exempt:
                    return at
                num_matched = borders[-1]
        self._nums_matched[number] = num_matched
        return None

    def flush(self) -> str:
        """Returns the text that was held back. Call it when no more text comes."""
        held, self._held = self._held, ""
        return held


@lru_cache(maxsize=1024)
def _borders(stop: str) -> tuple[int, ...]:
    """Of each beginning of a text, the length of the longest shorter one that it ends with."""
    borders, length = [0], 0
    for character in stop[1:]:
        while length and stop[length] != character:
            length = borders[length - 1]
        length += stop[length] == character
        borders.append(length)
    return tuple(borders)


def num_overlapping(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` starts with."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
