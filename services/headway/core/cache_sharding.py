"""How a cache lies on the workers of a group, as they tell it."""

from dataclasses import dataclass

from headway.core.kv import ShardUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardWork:
    """What attention over a rank's shard has taken since the model was loaded.

    Attributes:
        num_calls: of attention, one for each layer and step.
        num_keys: that they read: for each token of the step, those of its sequence that lie on the shard.
        seconds: from when all ranks had exchanged what they need until this rank was done.
    """

    num_calls: int = 0
    num_keys: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSharding:
    """One worker's answer.

    Attributes:
        epoch: changes with the leader's cache; empty at the other ranks.
        shards: by cache-parallel rank; empty at ranks that do not lead.
        work: the worker's own.
    """

    epoch: str = ""
    shards: tuple[ShardUsage, ...] = ()
    work: ShardWork = ShardWork()

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(shard.weight for shard in self.shards)
