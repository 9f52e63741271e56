"""Stop strings, wherever tokens cut them."""

from collections.abc import Sequence


class StopScanner:
    """Lets text pass up to the first stop string, and holds back what may still become one.

    However the text is cut into pieces, the result is the same: the stop string that is complete first wins, and of
    two that end together the one that starts first.
    """

    __slots__ = ("_held", "_includes_stop", "_stops")

    def __init__(self, stops: Sequence[str], *, includes_stop: bool = False) -> None:
        """`includes_stop` lets the stop string itself pass, too."""
        assert all(stops), "an empty stop string matches everywhere"
        self._stops = tuple(stops)
        self._includes_stop = includes_stop
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """The text that may go out, and whether a stop string was found behind it or at its end. Not to be called after
        that."""
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self._held = ""
            end, start = min(found)
            return text[: end if self._includes_stop else start], True
        num_held = max(num_overlapping(text, stop) for stop in self._stops)
        cut = len(text) - num_held
        self._held = text[cut:]
        return text[:cut], False

    def flush(self) -> str:
        """Returns the text that was held back. Call it when no more text comes."""
        held, self._held = self._held, ""
        return held


def num_overlapping(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` starts with."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
