"""The engine's figures, for metrics and load reports."""

from dataclasses import dataclass

from headway.core.step_work import StepWork


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """The engine as it stands, and its latest step.

    Attributes:
        num_steps: steps since the start.
        num_running, num_waiting: sequences now.
        num_context_tokens: of the running sequences.
        num_pending_prefill_tokens: of running and waiting sequences, still to be computed.
        num_swapped: waiting sequences whose blocks lie on the host.
        num_preemptions: of groups, since the start.
        num_swaps: of those, the ones that moved blocks to the host; the others recompute.
        num_used_blocks, num_cached_blocks, num_free_blocks: referenced; unreferenced but still shareable; empty.
            They add up to the pool.
        num_used_host_blocks: with the content of swapped sequences.
        num_prefix_queries, num_prefix_hits: tokens looked up in the prefix cache, and found, since the start; each
            sequence counts once, however often it is preempted.
        num_prefill_tokens, num_decode_tokens: computed by the batch that the latest step finished; drafts are counted
            apart.
        num_draft_tokens, num_accepted_tokens: guessed ahead, and found right, since the start.
        num_moved_blocks: between shards of the cache, to even them out, since the start.
        duration_s: of that batch, from its start; behind another one, from when that one was done.
        work: of all steps since the start.
        adapters: that are loaded, by key.
    """

    num_steps: int
    num_running: int
    num_waiting: int
    num_swapped: int
    num_context_tokens: int
    num_pending_prefill_tokens: int
    num_preemptions: int
    num_swaps: int
    num_used_blocks: int
    num_cached_blocks: int
    num_free_blocks: int
    num_used_host_blocks: int
    num_prefix_queries: int
    num_prefix_hits: int
    num_prefill_tokens: int
    num_decode_tokens: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_moved_blocks: int
    duration_s: float
    work: StepWork
    adapters: tuple[str, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Computed by the latest step, but for drafts."""
        return self.num_prefill_tokens + self.num_decode_tokens

    @property
    def kv_usage(self) -> float:
        """The share of the pool that is referenced."""
        return self.num_used_blocks / (self.num_used_blocks + self.num_cached_blocks + self.num_free_blocks)


@dataclass(frozen=True, slots=True)
class ShardStats:
    """The device blocks of one shard of the cache: referenced; unreferenced but still shareable; empty.

    `weight` is the share of every sequence's blocks that it is to have.
    """

    num_used: int
    num_cached: int
    num_free: int
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStats:
    """The KV blocks as they stand. Used, cached and free blocks add up to the pool, likewise on the host.

    Attributes:
        num_used, num_cached, num_free: referenced; unreferenced but still shareable; empty.
        num_pinned: that pinned prefixes take up, computed or not.
        num_shared: in more than one table.
        num_table_entries: what the tables would take up without sharing.
        num_allocated_slots: token slots of the blocks in tables, shared ones once.
        num_wasted_slots: of those, the ones without a token.
        num_host_used: with the content of swapped sequences.
        num_host_cached, num_host_free: as on the device.
        shards: the device blocks, shard by shard.
    """

    num_used: int
    num_cached: int
    num_free: int
    num_pinned: int
    num_shared: int
    num_table_entries: int
    num_allocated_slots: int
    num_wasted_slots: int
    num_host_used: int
    num_host_cached: int
    num_host_free: int
    shards: tuple[ShardStats, ...]
