"""A histogram for what is observed thousands of times a second."""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable
from threading import Lock

from prometheus_client import Histogram
from prometheus_client.samples import Sample

_MAX_PENDING = 1024


class BatchedHistogram(Histogram):
    """Sorts values into its buckets when it is read, or has many: to observe one is to keep it."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._pending: deque[float] = deque()
        self._sorting = Lock()

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """See `Histogram.observe`; there are no exemplars."""
        assert exemplar is None, "values are kept without them"
        pending = self._pending
        pending.append(amount)
        if len(pending) >= _MAX_PENDING:
            self._sort_in()

    def _sort_in(self) -> None:
        with self._sorting:  # who reads it does so in a thread of its own
            amounts = [self._pending.popleft() for _ in range(len(self._pending))]
            for bucket, count in Counter(bisect_left(self._upper_bounds, amount) for amount in amounts).items():
                self._buckets[bucket].inc(count)
            self._sum.inc(sum(amounts))

    def _child_samples(self) -> Iterable[Sample]:
        self._sort_in()
        return super()._child_samples()
