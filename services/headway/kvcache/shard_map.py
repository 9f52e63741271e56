"""Maps the ranges of a sequence to the workers that own them."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.kv import SequenceBlocks, ShardUsage, TokenRange


def with_ranges(sequence: SequenceBlocks, shards: Sequence[ShardUsage]) -> SequenceBlocks:
    """The sequence with its computed tokens' owners: neighbouring blocks of one shard are one range."""
    ranges: list[TokenRange] = []
    stop = 0
    for block in sequence.blocks:
        if not block.num_tokens:
            continue  # only the last ones have none
        start, stop = stop, stop + block.num_tokens
        if ranges and ranges[-1].shard == block.shard:
            start = ranges.pop().start
        owners = shards[block.shard].worker_ids
        ranges.append(TokenRange(start=start, stop=stop, shard=block.shard, worker_ids=owners))
    return replace(sequence, ranges=tuple(ranges))
