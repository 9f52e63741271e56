"""Who owns which tokens, against every token by itself."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headway.core.kv import BlockUse, SequenceBlocks, ShardUsage
from headway.kvcache.shard_map import with_ranges

BLOCK_SIZE = 4
SHARDS = [ShardUsage(worker_ids=(f"worker-{shard}", f"worker-{shard + 3}")) for shard in range(3)]


def sequence(shards: list[int], num_computed: int) -> SequenceBlocks:
    """Its blocks on these shards, so many tokens computed."""
    blocks = tuple(
        BlockUse(block_id=i, shard=shard, num_tokens=min(BLOCK_SIZE, max(0, num_computed - i * BLOCK_SIZE)))
        for i, shard in enumerate(shards)
    )
    return SequenceBlocks(
        label="a",
        status="running",
        num_prompt_tokens=1,
        num_tokens=num_computed + 1,
        num_computed_tokens=num_computed,
        blocks=blocks,
        num_shards=len(SHARDS),
    )


@given(st.lists(st.integers(0, 2), max_size=12), st.integers(0, 48))
def test_ranges_cover_the_computed_tokens_once_and_name_their_owners(shards: list[int], num_computed: int) -> None:
    num_computed = min(num_computed, len(shards) * BLOCK_SIZE)
    ranges = with_ranges(sequence(shards, num_computed), SHARDS).ranges
    owner_of = [span.shard for span in ranges for _ in range(span.start, span.stop)]
    assert owner_of == [shards[token // BLOCK_SIZE] for token in range(num_computed)]
    assert [span.start for span in ranges] == [0, *(span.stop for span in ranges)][: len(ranges)]
    assert all(before.shard != after.shard for before, after in pairwise(ranges))
    assert all(span.worker_ids == SHARDS[span.shard].worker_ids for span in ranges)
