"""Counters of what a rank sends to others."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CollectiveKey:
    """The key under which collective traffic is counted.

    Attributes:
        axis: the axis it goes along: "tensor", "cache" or "pipeline".
        operation: the collective, "send" or "receive".
        site: the place in the network that sends.
    """

    axis: str
    operation: str
    site: str


@dataclass(slots=True)
class CollectiveCount:
    """
    Attributes:
        num_bytes: that leave this rank as the algorithm has it, without the transport's own.
        seconds: between a call and its return, which is also the wait for slower ranks.
    """

    num_calls: int = 0
    num_bytes: int = 0
    seconds: float = 0.0


class CollectiveCounters:
    """Counts from the group's start, or of one of its models.

    Args:
        lines: whose calls are to be counted here while `open`; None for the own.
    """

    def __init__(self, lines: "CollectiveCounters | None" = None) -> None:
        self._counts: dict[CollectiveKey, CollectiveCount] = {}
        self._lines = lines or self
        self._page = self._counts  # of `lines`: where calls are counted

    def open(self) -> None:
        """Has the calls from now on counted here."""
        self._lines.turn_to(self._counts)

    def turn_to(self, page: dict[CollectiveKey, CollectiveCount]) -> None:
        self._page = page

    def add(self, key: CollectiveKey, *, num_bytes: int, seconds: float) -> None:
        count = self._page.setdefault(key, CollectiveCount())
        count.num_calls += 1
        count.num_bytes += num_bytes
        count.seconds += seconds

    def totals(self) -> dict[CollectiveKey, CollectiveCount]:
        """Returns the counts so far; other threads may ask."""
        return dict(self._counts)

    @property
    def seconds(self) -> float:
        """The seconds that all calls have taken together."""
        return sum(count.seconds for count in self.totals().values())
