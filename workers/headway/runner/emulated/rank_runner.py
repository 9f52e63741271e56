"""A device of an emulated group that does not lead."""

import threading

from headway.core.cache_sharding import ShardWork
from headway.runner.parallel.collective_counters import CollectiveCounters


class EmulatedRankRunner:
    """Implements `headway.worker.runners.RankRunner`: the leader keeps the group's time, and this is only there, so
    that it can die and be counted."""

    weight_bytes = 0  # it holds none

    def __init__(self) -> None:
        self.shard_work = ShardWork()
        self.traffic = CollectiveCounters()
        self._is_over = threading.Event()

    def follow(self) -> None:
        self._is_over.wait()

    def end(self) -> None:
        self._is_over.set()
