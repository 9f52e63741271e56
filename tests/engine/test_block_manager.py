import pytest

from headway.core.block_hash import block_hashes
from headway.core.request import SamplingParams
from headway.engine.block_manager import BlockManager
from headway.engine.events import BlockRemoved, BlockStored
from headway.engine.sequence import Sequence

BLOCK_SIZE = 4


def sequence(token_ids: range | list[int], *, sampling: SamplingParams | None = None) -> Sequence:
    tokens = list(token_ids)
    return Sequence("s", tokens, len(tokens), sampling or SamplingParams(), arrival_s=0.0)


def manager(num_blocks: int = 8, *, enable_prefix_cache: bool = True) -> BlockManager:
    return BlockManager(num_blocks, block_size=BLOCK_SIZE, enable_prefix_cache=enable_prefix_cache)


def compute(blocks: BlockManager, seq: Sequence) -> None:
    """Admits a sequence and computes all of its tokens."""
    blocks.adopt(seq, prefix=blocks.find_prefix(seq))
    assert blocks.grow(seq, num_tokens=len(seq))
    seq.num_computed_tokens = len(seq)
    blocks.publish(seq)


def table_of_prefix(blocks: BlockManager, seq: Sequence) -> list[int]:
    """The blocks that the sequence would share."""
    blocks.adopt(seq, prefix=blocks.find_prefix(seq))
    table = list(seq.block_table)
    blocks.free(seq)
    return table


def test_blocks_are_taken_only_as_tokens_need_them() -> None:
    blocks, seq = manager(), sequence(range(9))
    for num_tokens, num_blocks in [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (3, 3)]:
        assert blocks.grow(seq, num_tokens=num_tokens)
        assert len(seq.block_table) == blocks.num_used_blocks == num_blocks
    blocks.check_integrity([seq])


def test_only_sequences_of_one_salt_share_blocks() -> None:
    blocks = manager()
    first = sequence(range(9))
    first.cache_salt = "a"
    compute(blocks, first)
    assert first.block_hashes == block_hashes(range(9), block_size=BLOCK_SIZE, salt=b"a")
    for salt, num_shared in (("a", 2), ("b", 0), ("", 0)):
        other = sequence(range(9))
        other.cache_salt = salt
        assert len(table_of_prefix(blocks, other)) == num_shared
        assert other.copy().cache_salt == salt


def test_growing_beyond_the_pool_changes_nothing() -> None:
    blocks, seq = manager(2), sequence(range(12))
    assert blocks.grow(seq, num_tokens=4)
    assert not blocks.grow(seq, num_tokens=12)
    assert len(seq.block_table) == 1
    assert blocks.num_available_blocks == 1
    blocks.check_integrity([seq])


def test_two_sequences_share_the_full_blocks_of_their_common_prefix() -> None:
    blocks = manager()
    first, second = sequence(range(10)), sequence([*range(8), 90, 91])
    compute(blocks, first)
    compute(blocks, second)
    assert first.block_table[:2] == second.block_table[:2]
    assert first.block_table[2] != second.block_table[2]
    assert blocks.num_used_blocks == 4
    blocks.check_integrity([first, second])
    blocks.free(first)
    blocks.check_integrity([second])
    assert blocks.num_used_blocks == 3


def test_a_fully_cached_prompt_keeps_its_last_token_to_compute() -> None:
    blocks = manager()
    first, same = sequence(range(8)), sequence(range(8))
    compute(blocks, first)
    assert table_of_prefix(blocks, same) == list(first.block_table[:1])
    assert table_of_prefix(blocks, sequence(range(9))) == list(first.block_table)


def test_uncomputed_blocks_are_not_shared() -> None:
    blocks, first = manager(), sequence(range(9))
    blocks.grow(first, num_tokens=9)
    first.num_computed_tokens = 5
    blocks.publish(first)
    assert table_of_prefix(blocks, sequence(range(9))) == list(first.block_table[:1])


def test_a_sequence_that_wants_prompt_logprobs_does_not_use_the_cache() -> None:
    blocks = manager()
    compute(blocks, sequence(range(9)))
    asking = sequence(range(9), sampling=SamplingParams(num_prompt_logprobs=0))
    assert blocks.find_prefix(asking) == []


def test_freed_content_is_found_again_until_its_room_is_needed() -> None:
    blocks, first = manager(4), sequence(range(12))
    compute(blocks, first)
    table = list(first.block_table)
    blocks.free(first)
    assert (blocks.num_cached_blocks, blocks.num_free_blocks, blocks.num_used_blocks) == (3, 1, 0)
    assert len(blocks.find_prefix(sequence(range(13)))) == 3
    assert table_of_prefix(blocks, sequence(range(13))) == table
    assert blocks.grow(sequence(range(50, 66)), num_tokens=16)
    assert blocks.find_prefix(sequence(range(13))) == []


def test_the_least_recently_used_content_is_evicted_first_and_leaves_before_its_prefix() -> None:
    blocks = manager(4)
    older, newer = sequence(range(8)), sequence(range(50, 58))
    compute(blocks, older)
    compute(blocks, newer)
    blocks.free(older)
    blocks.free(newer)
    taker = sequence(range(80, 92))
    assert blocks.grow(taker, num_tokens=4)  # takes the end of `older`
    assert len(blocks.find_prefix(sequence(range(9)))) == 1
    assert blocks.grow(taker, num_tokens=12)  # then its start, then the end of `newer`
    assert blocks.find_prefix(sequence(range(9))) == []
    assert len(blocks.find_prefix(sequence(range(50, 59)))) == 1


def test_adopting_refreshes_content() -> None:
    blocks = manager(4)
    older, newer = sequence(range(4)), sequence(range(50, 54))
    for seq in (older, newer):
        compute(blocks, seq)
    blocks.free(older)
    blocks.free(newer)
    again = sequence(range(6))
    compute(blocks, again)
    blocks.free(again)
    blocks.grow(sequence(range(80, 92)), num_tokens=12)
    assert blocks.find_prefix(sequence(range(5)))
    assert not blocks.find_prefix(sequence(range(50, 55)))


def test_reviving_a_cached_prefix_counts_against_the_room() -> None:
    blocks, first = manager(3), sequence(range(8))
    compute(blocks, first)
    blocks.free(first)
    prefix = blocks.find_prefix(sequence(range(9)))
    assert blocks.fits(prefix=prefix, num_tokens=12, num_reserved=0)
    assert not blocks.fits(prefix=prefix, num_tokens=12, num_reserved=1)
    assert not blocks.fits(prefix=prefix, num_tokens=13, num_reserved=0)


def test_twins_computed_at_once_are_published_once() -> None:
    blocks = manager()
    twins = [sequence(range(9)), sequence(range(9))]
    for twin in twins:
        blocks.grow(twin, num_tokens=9)
        twin.num_computed_tokens = 9
    for twin in twins:
        blocks.publish(twin)
    assert table_of_prefix(blocks, sequence(range(9))) == list(twins[0].block_table[:2])
    blocks.check_integrity(twins)
    for twin in twins:
        blocks.free(twin)
    assert (blocks.num_cached_blocks, blocks.num_free_blocks) == (2, 6)
    blocks.check_integrity([])


def test_events_tell_the_chain_of_stored_blocks_and_what_is_evicted() -> None:
    blocks, seq = manager(3), sequence(range(12))
    compute(blocks, seq)
    first, second, third = block_hashes(range(12), block_size=BLOCK_SIZE)
    stored = blocks.events.since(0)
    assert stored is not None
    assert stored.events == (BlockStored(first, b""), BlockStored(second, first), BlockStored(third, second))
    blocks.free(seq)
    blocks.grow(sequence(range(50, 54)), num_tokens=4)
    removed = blocks.events.since(3)
    assert removed is not None
    assert removed.events == (BlockRemoved(third),)


def test_without_a_prefix_cache_nothing_is_shared_or_kept() -> None:
    blocks, seq = manager(enable_prefix_cache=False), sequence(range(9))
    compute(blocks, seq)
    assert blocks.find_prefix(sequence(range(9))) == []
    blocks.free(seq)
    assert blocks.num_free_blocks == 8
    assert blocks.events.snapshot().blocks == ()


def test_salted_pools_name_the_same_tokens_differently() -> None:
    names = []
    for salt in (b"a", b"b"):
        blocks = BlockManager(4, block_size=BLOCK_SIZE, salt=salt)
        compute(blocks, sequence(range(4)))
        names.append(blocks.events.snapshot().blocks[0].block_hash)
        assert names[-1] == block_hashes(range(4), block_size=BLOCK_SIZE, salt=salt)[0]
    assert names[0] != names[1]


@pytest.mark.parametrize("corrupt", ["reference", "lost", "double", "unnamed"])
def test_the_integrity_check_finds_broken_blocks(corrupt: str) -> None:
    blocks, seq, cached = manager(), sequence(range(6)), sequence(range(50, 54))
    compute(blocks, cached)
    blocks.free(cached)
    compute(blocks, seq)
    blocks.check_integrity([seq])
    if corrupt == "reference":
        blocks._pool._num_references[seq.block_table[0]] += 1
    elif corrupt == "lost":
        blocks._pool.free_queue.free[0].pop()
    elif corrupt == "double":
        blocks._pool.free_queue.free[0].append(seq.block_table[0])
    else:
        blocks._pool._name_of[next(iter(blocks._pool.free_queue.cached[0]))] = None
    with pytest.raises(AssertionError):
        blocks.check_integrity([seq])
