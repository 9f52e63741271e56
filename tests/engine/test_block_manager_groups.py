"""Forks, swapping, pins and figures of the block manager."""

import pytest

from headway.core.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from headway.core.request import SamplingParams
from headway.engine.block_manager import BlockManager
from headway.engine.pins import PinnedPrefix
from headway.engine.sequence import Sequence

BLOCK_SIZE = 4


def sequence(token_ids: range | list[int]) -> Sequence:
    tokens = list(token_ids)
    return Sequence("s", tokens, len(tokens), SamplingParams(), arrival_s=0.0)


def manager(num_blocks: int = 12, *, num_host_blocks: int = 8, enable_prefix_cache: bool = True) -> BlockManager:
    return BlockManager(
        num_blocks, block_size=BLOCK_SIZE, num_host_blocks=num_host_blocks, enable_prefix_cache=enable_prefix_cache
    )


def compute(blocks: BlockManager, *sequences: Sequence) -> None:
    """Admits sequences that hold no blocks yet, and computes all of their tokens."""
    for seq in sequences:
        if not seq.block_table:
            blocks.adopt(seq, prefix=blocks.find_prefix(seq))
        assert blocks.grow(seq, num_tokens=len(seq))
    for seq in sequences:
        seq.num_computed_tokens = len(seq)
        blocks.publish(seq)


def samples(blocks: BlockManager, *, num_samples: int, prompt: range = range(10)) -> list[Sequence]:
    """Samples of one computed prompt, each with a token of its own to compute."""
    leader, *others = group = [sequence(prompt) for _ in range(num_samples)]
    compute(blocks, leader)
    for other in others:
        blocks.fork(leader, other)
    for index, seq in enumerate(group):
        seq.token_ids.append(100 + index)
    return group


def test_forks_share_every_block_until_they_write() -> None:
    blocks = manager()
    group = samples(blocks, num_samples=3)
    assert blocks.num_used_blocks == 3
    assert [blocks.num_blocks_to_grow(seq, num_tokens=11) for seq in group] == [1, 1, 1]
    compute(blocks, *group)
    assert len({seq.block_table[2] for seq in group}) == 3
    assert len({tuple(seq.block_table[:2]) for seq in group}) == 1
    assert blocks.num_used_blocks == 5  # the last writer kept the shared block
    _, _, copies = blocks.take_copies()
    kept = group[2].block_table[2]
    assert copies == [(kept, group[0].block_table[2]), (kept, group[1].block_table[2])]
    blocks.check_integrity(group)


def test_a_fork_at_the_end_of_a_block_copies_nothing() -> None:
    blocks = manager()
    group = samples(blocks, num_samples=2, prompt=range(8))
    compute(blocks, *group)
    assert blocks.take_copies() == ([], [], [])
    assert blocks.num_used_blocks == 4


def test_blocks_that_were_reserved_but_not_written_are_not_shared() -> None:
    blocks, parent, child = manager(), sequence(range(6)), sequence(range(6))
    compute(blocks, parent)
    assert blocks.grow(parent, num_tokens=12)
    blocks.fork(parent, child)
    assert child.block_table == parent.block_table[:2]


def test_forks_name_their_blocks_by_their_own_tokens() -> None:
    blocks = manager()
    group = samples(blocks, num_samples=2, prompt=range(7))
    for seq in group:
        assert len(blocks.find_prefix(seq)) == 1  # which names the block that the new token has filled, too
    child = sequence([*range(7), 99])
    blocks.fork(group[0], child)
    compute(blocks, *group, child)
    for tail, holder in [(100, group[0]), (101, group[1]), (99, child)]:
        found = sequence([*range(7), tail, 0])
        blocks.adopt(found, prefix=blocks.find_prefix(found))
        assert found.block_table == holder.block_table


def test_growing_without_room_for_the_copy_changes_nothing() -> None:
    blocks = manager(3)
    group = samples(blocks, num_samples=2)
    assert not blocks.grow(group[0], num_tokens=11)
    assert group[0].block_table == group[1].block_table
    assert blocks.take_copies() == ([], [], [])


def test_a_group_is_swapped_with_its_shared_blocks_moved_once() -> None:
    blocks = manager(enable_prefix_cache=False)
    group = samples(blocks, num_samples=3)
    compute(blocks, *group)
    blocks.take_copies()
    tables = [list(seq.block_table) for seq in group]
    assert blocks.num_blocks_to_swap(group) == 5
    assert blocks.swap_out(group)
    out, _, _ = blocks.take_copies()
    home = dict(out)
    assert len(out) == 5
    assert blocks.num_used_blocks == 0
    assert [seq.host_block_table for seq in group] == [[home[block] for block in table] for table in tables]
    assert [seq.num_computed_tokens for seq in group] == [11, 11, 11]
    blocks.check_integrity(group)
    assert blocks.can_swap_in(group, num_reserved=0)
    blocks.swap_in(group)
    _, into, _ = blocks.take_copies()
    assert len(into) == 5
    back = dict(into)
    assert [list(seq.block_table) for seq in group] == [[back[home[block]] for block in table] for table in tables]
    assert blocks.stats(group).num_host_used == 0
    blocks.check_integrity(group)


def test_a_group_that_does_not_fit_the_host_stays_whole() -> None:
    blocks = manager(num_host_blocks=4)
    group = samples(blocks, num_samples=3)
    compute(blocks, *group)
    tables = [list(seq.block_table) for seq in group]
    assert not blocks.swap_out(group)
    assert [list(seq.block_table) for seq in group] == tables
    assert blocks.take_copies()[0] == []
    blocks.check_integrity(group)


def test_a_group_comes_back_when_its_tokens_and_its_copies_on_write_fit() -> None:
    blocks = manager(5)
    group = samples(blocks, num_samples=3)  # three blocks, and two more once all have written
    assert blocks.swap_out(group)
    blocks.take_copies()
    assert blocks.can_swap_in(group, num_reserved=0)
    assert not blocks.can_swap_in(group, num_reserved=1)
    blocks.swap_in(group)
    assert all(blocks.grow(seq, num_tokens=len(seq)) for seq in group)
    assert blocks.num_available_blocks == 0


def test_content_that_stayed_on_the_device_is_not_copied_back() -> None:
    blocks, seq = manager(), sequence(range(10))
    compute(blocks, seq)
    table = list(seq.block_table)
    assert blocks.swap_out([seq])
    blocks.take_copies()
    blocks.swap_in([seq])
    _, into, _ = blocks.take_copies()
    assert [block for _, block in into] == list(seq.block_table[2:])
    assert list(seq.block_table[:2]) == table[:2]


def test_a_swapped_sequence_that_is_cancelled_leaves_the_host() -> None:
    blocks, seq = manager(enable_prefix_cache=False), sequence(range(10))
    compute(blocks, seq)
    assert blocks.swap_out([seq])
    blocks.free(seq)
    stats = blocks.stats([])
    assert (stats.num_host_used, stats.num_host_free, stats.num_free) == (0, 8, 12)


def test_an_evicted_prefix_is_found_on_the_host_and_brought_back() -> None:
    blocks, first = manager(3), sequence(range(10))
    compute(blocks, first)
    blocks.free(first)
    other = sequence(range(50, 62))
    assert blocks.grow(other, num_tokens=12)
    assert len(blocks.take_copies()[0]) == blocks.stats([]).num_host_cached == 2
    blocks.free(other)
    again = sequence(range(10))
    prefix = blocks.find_prefix(again)
    assert len(prefix) == 2
    assert blocks.fits(prefix=prefix, num_tokens=10, num_reserved=0)
    assert not blocks.fits(prefix=prefix, num_tokens=10, num_reserved=1)
    blocks.adopt(again, prefix=prefix)
    _, into, _ = blocks.take_copies()
    assert [block for _, block in into] == list(again.block_table)
    assert again.num_computed_tokens == 8
    assert len(blocks.events.snapshot().blocks) == 2  # it never left the worker


def test_what_a_preemption_costs_leaves_out_what_others_keep() -> None:
    blocks = manager()
    first, second = sequence(range(10)), sequence([*range(8), 90, 91])
    compute(blocks, first)
    assert blocks.num_tokens_to_recompute([first]) == 10
    compute(blocks, second)
    assert blocks.num_tokens_to_recompute([first]) == 2
    assert blocks.num_tokens_to_recompute([first, second]) == 20
    assert blocks.num_blocks_to_swap([first, second]) == 4


def test_a_pinned_prefix_stays_from_when_it_is_computed_until_it_is_unpinned() -> None:
    blocks = manager(6, num_host_blocks=0)
    blocks.pin("system", range(10))
    assert blocks.num_unpinned_blocks == 4
    assert blocks.pinned_prefixes() == [PinnedPrefix("system", num_blocks=2, num_resident_blocks=0)]
    first = sequence(range(10))
    compute(blocks, first)
    blocks.free(first)
    assert blocks.pinned_prefixes() == [PinnedPrefix("system", num_blocks=2, num_resident_blocks=2)]
    other = sequence(range(50, 66))
    assert blocks.grow(other, num_tokens=16)
    assert not blocks.grow(other, num_tokens=17)
    assert len(blocks.find_prefix(sequence(range(10)))) == 2
    blocks.check_integrity([other])
    assert blocks.unpin("system")
    assert not blocks.unpin("system")
    assert blocks.num_unpinned_blocks == 6
    assert blocks.grow(other, num_tokens=24)
    blocks.check_integrity([other])


def test_pins_can_overlap_and_each_can_be_put_anew() -> None:
    blocks, seq = manager(), sequence(range(17))
    compute(blocks, seq)
    blocks.free(seq)
    blocks.pin("short", range(8))
    blocks.pin("long", range(16))
    assert blocks.num_unpinned_blocks == 8
    assert blocks.num_used_blocks == 4
    blocks.pin("long", range(12))
    blocks.pin("long", range(12))
    assert blocks.num_used_blocks == 3
    blocks.check_integrity([])
    blocks.unpin("short")
    assert blocks.num_used_blocks == 3
    blocks.unpin("long")
    assert (blocks.num_used_blocks, blocks.num_cached_blocks) == (0, 4)
    blocks.check_integrity([])


def test_pins_that_cannot_be_kept_are_refused_with_a_way_out() -> None:
    blocks = manager(4)
    blocks.pin("first", range(8))
    with pytest.raises(ResourceExhaustedError, match=r"3 of 4 blocks.*Unpin"):
        blocks.pin("second", range(50, 54))
    with pytest.raises(InvalidArgumentError, match="whole blocks of 4"):
        blocks.pin("second", range(3))
    with pytest.raises(FailedPreconditionError):
        manager(enable_prefix_cache=False).pin("first", range(8))
    assert [prefix.pin_id for prefix in blocks.pinned_prefixes()] == ["first"]


def test_figures_count_sharing_waste_and_both_tiers() -> None:
    blocks = manager()
    group = samples(blocks, num_samples=3)
    stats = blocks.stats(group)
    assert (stats.num_used, stats.num_shared, stats.num_table_entries) == (3, 3, 9)
    assert (stats.num_allocated_slots, stats.num_wasted_slots) == (12, 2)
    compute(blocks, *group)
    assert blocks.grow(group[0], num_tokens=13)
    stats = blocks.stats(group)
    assert (stats.num_used, stats.num_shared, stats.num_table_entries) == (6, 2, 10)
    assert (stats.num_allocated_slots, stats.num_wasted_slots) == (24, 3 + 4)
    assert blocks.swap_out(group)
    blocks.take_copies()
    stats = blocks.stats(group)
    assert (stats.num_used, stats.num_cached, stats.num_host_used, stats.num_host_free) == (0, 2, 5, 3)
