"""The sharding of a KV cache over the workers of a group, as they report it."""

from dataclasses import dataclass

from headway.core.kv import ShardUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWork:
    """The work of attention over a rank's cache shard since the model was loaded.

    Attributes:
        num_calls: calls of attention, one for each layer and step.
        num_keys: keys that they read: for each token of the step, those of its sequence that lie on the shard.
        seconds: the time from when all ranks had exchanged what they need until this rank was done.
    """

    num_calls: int = 0
    num_keys: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSharding:
    """One worker's report of how its cache is sharded.

    Attributes:
        epoch: changes with the leader's cache; empty at the other ranks.
        shards: the shards by cache-parallel rank; empty at ranks that do not lead.
        work: the attention work of this worker's shard.
    """

    epoch: str = ""
    shards: tuple[ShardUsage, ...] = ()
    work: ShardWork = ShardWork()

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(shard.weight for shard in self.shards)
