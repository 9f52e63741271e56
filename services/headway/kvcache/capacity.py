"""How full the workers' caches are."""

from dataclasses import dataclass

from headway.core.kv import ShardUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCapacity:
    """One worker's blocks. Sizes are 0 until it has sent a load report.

    Attributes:
        num_indexed_blocks: the number of its blocks that the prefix index knows.
        sequence_number: of the last event applied.
        num_snapshots: how often the index was rebuilt from a snapshot of it.
        num_drifted_blocks: that snapshots proved the index wrong about.
        shards: of a cache that lies on several workers, as it was seen last; else none.
    """

    worker_id: str
    model: str
    block_size: int
    num_blocks: int
    num_free_blocks: int
    num_indexed_blocks: int
    sequence_number: int
    num_snapshots: int
    num_drifted_blocks: int
    shards: tuple[ShardUsage, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterCapacity:
    """The capacity of all workers' caches, and the number of distinct block hashes over them."""

    workers: tuple[WorkerCapacity, ...]
    num_distinct_blocks: int
