"""A model's part on a rank that does not lead."""

from headway.core.cache_sharding import ShardWork
from headway.runner.parallel.collective_counters import CollectiveCounters
from headway.runner.parallel.follower import Follower
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.rank_loop import Shard
from headway.runner.shard_runner import ShardRunner


class RankRunner:
    """The runner of a model on a rank that does not lead; implements `headway.worker.runners.RankRunner`.

    Args:
        follower: the follower that computes the model, and knows it by its number.
    """

    def __init__(self, shard: Shard, *, group: RankGroup, follower: Follower, number: int) -> None:
        self.weight_bytes = shard.weight_bytes
        self.traffic: CollectiveCounters = group.traffic
        self._shard = shard
        self._follower = follower
        self._number = number

    @property
    def shard_work(self) -> ShardWork:
        return self._shard.shard_work if isinstance(self._shard, ShardRunner) else ShardWork()

    def follow(self) -> None:
        self._follower.follow(self._number)

    def end(self) -> None:
        """Changes nothing: a rank that waits in a collective hears its leader only."""
