"""Measures how long a rank's attention takes over its shard of the cache."""

import time

from torch import Tensor

from headway.core.cache_sharding import ShardWork
from headway.models.layout import CacheExchange


class ShardMeter:
    """A `CacheExchange` that counts what lies between its two halves: there, each rank works for itself.

    Only where calls return when they are done, so not on GPUs.

    Attributes:
        num_keys: that each call of the step under way reads; to be set before it.
    """

    def __init__(self, exchange: CacheExchange) -> None:
        self._exchange = exchange
        self._num_calls = 0
        self._total_keys = 0
        self._seconds = 0.0
        self._started_s = 0.0
        self.num_keys = 0

    @property
    def work(self) -> ShardWork:
        """The work so far. Another thread may ask, and then be off by a part of one call."""
        return ShardWork(num_calls=self._num_calls, num_keys=self._total_keys, seconds=self._seconds)

    def gather(self, heads: Tensor, num_tokens: int) -> Tensor:
        gathered = self._exchange.gather(heads, num_tokens)
        self._started_s = time.perf_counter()
        return gathered

    def room(self, q: Tensor, width: int) -> Tensor:
        return self._exchange.room(q, width)

    def scatter(self, partials: Tensor) -> Tensor:
        self._seconds += time.perf_counter() - self._started_s
        self._total_keys += self.num_keys
        self._num_calls += 1
        return self._exchange.scatter(partials)
