"""Reports what a worker's KV blocks are used for: all of them, and those of one request."""

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from headway.core.kv import BlockUse, KvUsage, SequenceBlocks, ShardUsage
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.engine.request_blocks import RequestBlocks, SequenceTable

Owners: TypeAlias = Sequence[tuple[str, ...]]


def usage_of(engine: Engine, *, worker_id: str, model: str, owners: Owners) -> KvUsage:
    """Takes time proportional to all block tables, in the engine's thread.

    Args:
        owners: the workers that have each shard.
    """
    blocks, stats = engine.block_stats(), engine.stats()
    return KvUsage(
        worker_id=worker_id,
        model=model,
        block_size=engine.config.block_size,
        num_used_blocks=blocks.num_used,
        num_cached_blocks=blocks.num_cached,
        num_free_blocks=blocks.num_free,
        num_shared_blocks=blocks.num_shared,
        num_pinned_blocks=blocks.num_pinned,
        num_used_host_blocks=blocks.num_host_used,
        num_cached_host_blocks=blocks.num_host_cached,
        num_free_host_blocks=blocks.num_host_free,
        num_table_entries=blocks.num_table_entries,
        num_allocated_slots=blocks.num_allocated_slots,
        num_wasted_slots=blocks.num_wasted_slots,
        num_prefix_query_tokens=stats.num_prefix_queries,
        num_prefix_hit_tokens=stats.num_prefix_hits,
        num_recompute_preemptions=stats.num_preemptions - stats.num_swaps,
        num_swap_preemptions=stats.num_swaps,
        num_running=stats.num_running,
        num_waiting=stats.num_waiting,
        num_swapped=stats.num_swapped,
        shards=shards_of(engine, owners),
        num_moved_blocks=stats.num_moved_blocks,
    )


def shards_of(engine: Engine, owners: Owners) -> tuple[ShardUsage, ...]:
    """The same by shard; takes next to no time."""
    return tuple(
        ShardUsage(
            num_used_blocks=shard.num_used,
            num_cached_blocks=shard.num_cached,
            num_free_blocks=shard.num_free,
            weight=shard.weight,
            worker_ids=worker_ids,
        )
        for shard, worker_ids in zip(engine.shard_stats(), owners, strict=True)
    )


def sequences_of(engine: Engine, request_id: str) -> list[SequenceBlocks]:
    """Every sequence of a request; see `ids_of`."""
    found: dict[str, SequenceBlocks] = {}
    for known_id in ids_of(engine.request_ids(), request_id):
        if known_id not in found:
            blocks = engine.describe(known_id)
            found |= {table.label: _sequence(table, blocks, engine.config) for table in blocks.tables}
    return list(found.values())


def ids_of(known_ids: Iterable[str], request_id: str) -> list[str]:
    """Those of the sequences that belong to a request, as its client or a worker calls it; none where none does.

    Gateways make ids unique and number the sequences: "req-1" becomes "req-1.0a1b2c3d", its third one
    "req-1.0a1b2c3d/2".
    """
    accepted = re.compile(re.escape(request_id) + r"(\.[0-9a-f]{8})?(/\d+)?")
    return [known_id for known_id in known_ids if accepted.fullmatch(known_id)]


def _sequence(table: SequenceTable, blocks: RequestBlocks, config: EngineConfig) -> SequenceBlocks:
    return SequenceBlocks(
        label=table.label,
        status=table.status,
        num_prompt_tokens=table.num_prompt_tokens,
        num_tokens=table.num_tokens,
        num_computed_tokens=table.num_computed_tokens,
        num_preemptions=blocks.num_preemptions,
        blocks=tuple(
            BlockUse(
                block_id=entry.block,
                is_on_host=entry.is_on_host,
                num_tokens=entry.num_tokens,
                shared_with=entry.shared_with,
                shard=config.shard_of(entry.block, is_on_host=entry.is_on_host),
            )
            for entry in table.entries
        ),
        num_shards=config.num_shards,
    )
