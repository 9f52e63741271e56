"""The use of KV blocks, as workers report it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardUsage:
    """The device blocks of one shard of a cache that lies on several ranks: referenced; still shareable; empty.

    Attributes:
        weight: its share of every sequence's blocks; those of all shards add up to 1.
        worker_ids: of the group's workers, those that have the shard; several where they share heads or layers.
    """

    num_used_blocks: int = 0
    num_cached_blocks: int = 0
    num_free_blocks: int = 0
    weight: float = 1.0
    worker_ids: tuple[str, ...] = ()

    @property
    def num_blocks(self) -> int:
        return self.num_used_blocks + self.num_cached_blocks + self.num_free_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class KvUsage:
    """One worker's blocks. Used, cached and free ones add up to the pool, likewise on the host.

    Attributes:
        block_size: tokens per block.
        num_used_blocks, num_cached_blocks, num_free_blocks: referenced; unreferenced but still shareable; empty.
        num_shared_blocks: that several block tables name.
        num_pinned_blocks: that pinned prefixes take up, computed or not.
        num_table_entries: what the tables would take up without sharing.
        num_allocated_slots: token slots of the blocks in tables, shared ones once.
        num_wasted_slots: of those, the ones without a token.
        num_prefix_query_tokens, num_prefix_hit_tokens: looked up in the prefix cache, and found, since the start.
        num_recompute_preemptions, num_swap_preemptions: since the start.
        num_running, num_waiting, num_swapped: sequences.
        shards: the device blocks, by cache-parallel rank; one where the cache is whole.
        num_moved_blocks: between shards, to even them out, since the start.
    """

    worker_id: str
    model: str = ""
    block_size: int = 0
    num_used_blocks: int = 0
    num_cached_blocks: int = 0
    num_free_blocks: int = 0
    num_shared_blocks: int = 0
    num_pinned_blocks: int = 0
    num_used_host_blocks: int = 0
    num_cached_host_blocks: int = 0
    num_free_host_blocks: int = 0
    num_table_entries: int = 0
    num_allocated_slots: int = 0
    num_wasted_slots: int = 0
    num_prefix_query_tokens: int = 0
    num_prefix_hit_tokens: int = 0
    num_recompute_preemptions: int = 0
    num_swap_preemptions: int = 0
    num_running: int = 0
    num_waiting: int = 0
    num_swapped: int = 0
    shards: tuple[ShardUsage, ...] = ()
    num_moved_blocks: int = 0

    @property
    def num_blocks(self) -> int:
        return self.num_used_blocks + self.num_cached_blocks + self.num_free_blocks

    @property
    def num_host_blocks(self) -> int:
        return self.num_used_host_blocks + self.num_cached_host_blocks + self.num_free_host_blocks

    @property
    def num_saved_blocks(self) -> int:
        """Further blocks that the tables would take without sharing."""
        return self.num_table_entries - self.num_allocated_slots // self.block_size if self.block_size else 0

    @property
    def waste(self) -> float | None:
        """Share of the allocated slots without a token; None where nothing is allocated."""
        return self.num_wasted_slots / self.num_allocated_slots if self.num_allocated_slots else None

    @property
    def hit_rate(self) -> float | None:
        """Share of looked-up tokens that the prefix cache had; None before the first."""
        return self.num_prefix_hit_tokens / self.num_prefix_query_tokens if self.num_prefix_query_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockUse:
    """One entry of a block table.

    Attributes:
        is_on_host: whether it lies in the host tier rather than the device's pool.
        num_tokens: how many computed tokens of this sequence it holds.
        shared_with: other sequences, of any request, whose tables name the block.
        shard: the cache-parallel rank that has it, in its pool or host tier.
    """

    block_id: int
    is_on_host: bool = False
    num_tokens: int = 0
    shared_with: tuple[str, ...] = ()
    shard: int = 0

    @property
    def num_references(self) -> int:
        return 1 + len(self.shared_with)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRange:
    """Consecutive tokens of a sequence whose keys and values lie on one shard: [start, stop).

    Attributes:
        worker_ids: that have the shard.
    """

    start: int
    stop: int
    shard: int
    worker_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceBlocks:
    """One sequence and its block table.

    Attributes:
        label: its request id; for a beam, with its rank behind it.
        status: 'waiting', 'running' or 'swapped'.
        num_shards: the number of shards that its blocks may lie on.
        ranges: where the computed tokens lie, in their order; empty where there is one shard.
    """

    label: str
    status: str
    num_prompt_tokens: int
    num_tokens: int
    num_computed_tokens: int
    num_preemptions: int = 0
    blocks: tuple[BlockUse, ...] = ()
    num_shards: int = 1
    ranges: tuple[TokenRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestUsage:
    """A running request's sequences on one worker; its prompts may run on several."""

    worker_id: str
    model: str
    block_size: int
    sequences: tuple[SequenceBlocks, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A worker that a prefix is, or should be, resident on.

    Attributes:
        num_blocks: of the prefix that are there.
        fault: why not all are; empty when they are.
    """

    worker_id: str
    num_blocks: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedPrefix:
    """A prefix and where it is."""

    name: str
    model: str
    num_tokens: int
    created_at_s: float
    holders: tuple[Holder, ...] = ()
