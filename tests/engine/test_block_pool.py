"""The order of copies within one step, case by case; the random walks of the block manager cover their mixtures."""

from headway.engine.block_pool import BlockPool
from headway.engine.events import BlockEventLog, BlockRemoved, BlockStored


def pool(num_blocks: int = 4, *, num_host_blocks: int = 2) -> BlockPool:
    return BlockPool(num_blocks, num_host_blocks=num_host_blocks, events=BlockEventLog())


def swapped(blocks: BlockPool) -> int:
    """A host block with the content of an unnamed device block, which has left the device in an earlier step."""
    block = blocks.take()
    moved = blocks.move_out([block])
    assert moved is not None
    blocks.drop(block)
    blocks.take_copies()
    return moved[block]


def shared(blocks: BlockPool) -> int:
    block = blocks.take()
    blocks.reference(block)
    return block


def test_a_copy_on_write_reads_the_shared_block_and_takes_over_one_reference() -> None:
    blocks = pool()
    block = shared(blocks)
    own = blocks.copy(block)
    assert (blocks.num_references(block), blocks.num_references(own)) == (1, 1)
    assert blocks.take_copies() == ([], [], [(block, own)])
    assert blocks.take_copies() == ([], [], [])


def test_a_block_that_a_copy_reads_is_not_given_away_in_the_same_step() -> None:
    blocks = pool(3, num_host_blocks=0)
    block = shared(blocks)
    blocks.copy(block)
    blocks.drop(block)
    assert blocks.num_available_blocks == 1
    assert blocks.take() != block
    blocks.take_copies()
    assert blocks.take() == block


def test_a_copy_whose_destination_is_given_up_is_left_out() -> None:
    blocks = pool()
    host_block = swapped(blocks)
    own = blocks.copy(shared(blocks))
    blocks.drop(own)
    assert blocks.bring_in([host_block]) == {host_block: own}
    assert blocks.take_copies() == ([], [(host_block, own)], [])


def test_a_copy_of_a_copy_reads_the_first_source() -> None:
    blocks = pool()
    block = shared(blocks)
    own = blocks.copy(block)
    blocks.reference(own)
    second = blocks.copy(own)
    assert blocks.take_copies()[2] == [(block, own), (block, second)]


def test_a_copy_of_content_that_comes_in_reads_the_host() -> None:
    blocks = pool()
    host_block = swapped(blocks)
    block = blocks.bring_in([host_block])[host_block]
    blocks.reference(block)
    own = blocks.copy(block)
    blocks.drop(block)  # whose copy is left out, while the other one still finds its content
    assert blocks.take_copies() == ([], [(host_block, own)], [])


def test_a_copy_that_leaves_for_the_host_in_the_same_step_leaves_from_its_source() -> None:
    blocks = pool()
    block = shared(blocks)
    own = blocks.copy(block)
    moved = blocks.move_out([own])
    assert moved is not None
    blocks.drop(own)
    assert blocks.take_copies() == ([(block, moved[own])], [], [])


def test_content_that_turns_back_in_the_same_step_is_still_on_the_host() -> None:
    blocks = pool()
    host_block = swapped(blocks)
    arrived = blocks.bring_in([host_block])
    blocks.host.drop(host_block)
    assert blocks.move_out([arrived[host_block]]) == {arrived[host_block]: host_block}
    assert blocks.take_copies()[0] == []


def test_a_host_block_that_is_read_is_not_overwritten_in_the_same_step() -> None:
    blocks = pool(num_host_blocks=1)
    host_block = swapped(blocks)
    blocks.bring_in([host_block])
    blocks.host.drop(host_block)  # by its sequence
    other = blocks.take()
    assert blocks.move_out([other]) is None
    blocks.take_copies()
    assert blocks.move_out([other]) == {other: host_block}


def test_evicted_content_goes_to_the_host_and_its_block_can_be_used_at_once() -> None:
    blocks = pool(1)
    block = blocks.take()
    blocks.publish(block, b"a", parent_name=b"")
    blocks.drop(block)
    assert blocks.take() == block
    assert blocks.holds(b"a")
    assert blocks.find(b"a") is None
    assert blocks.take_copies() == ([(block, 0)], [], [])


def test_evicted_content_comes_back_in_the_step_in_which_it_left() -> None:
    blocks = pool(2)
    block = blocks.take()
    blocks.publish(block, b"a", parent_name=b"")
    blocks.drop(block)
    blocks.take()
    blocks.take()  # evicts
    blocks.drop(block)
    (back,) = blocks.gather([b"a"])
    assert blocks.take_copies() == ([(block, 0)], [(0, back)], [])


def test_content_that_came_in_and_is_evicted_at_once_needs_no_copy_and_leaves_no_trace() -> None:
    blocks = pool(1)
    block = blocks.take()
    blocks.publish(block, b"a", parent_name=b"")
    blocks.drop(block)
    blocks.drop(blocks.take())  # evicts
    blocks.take_copies()
    (block,) = blocks.gather([b"a"])
    blocks.drop(block)
    blocks.take()
    assert blocks.take_copies() == ([], [], [])
    assert blocks.holds(b"a")


def test_gathering_a_prefix_does_not_push_out_a_part_of_it() -> None:
    blocks = pool(2, num_host_blocks=1)
    for name in (b"a", b"b"):
        block = blocks.take()
        blocks.publish(block, name, parent_name=b"")
        blocks.drop(block)
    held = blocks.take()  # moves "a" to the host
    blocks.drop(held)
    blocks.take_copies()
    first, second = blocks.gather([b"a", b"b"])
    assert (blocks.find(b"a"), blocks.find(b"b")) == (first, second)


def test_swapped_groups_push_cached_content_out_of_the_host_but_not_the_other_way() -> None:
    log = BlockEventLog()
    blocks = BlockPool(3, num_host_blocks=1, events=log)
    first, second = blocks.take(), blocks.take()
    for block, name in [(first, b"a"), (second, b"b")]:
        blocks.publish(block, name, parent_name=b"")
    group = blocks.take()
    blocks.drop(first)
    blocks.take()  # moves "a" to the host
    assert log.snapshot().blocks == (BlockStored(b"a", b""), BlockStored(b"b", b""))
    assert blocks.move_out([group]) == {group: 0}
    events = log.since(2)
    assert events is not None
    assert events.events == (BlockRemoved(b"a"),)
    blocks.drop(second)
    blocks.take()  # "b" finds no room
    assert not blocks.holds(b"b")
    assert blocks.host.num_used_blocks == 1


def sharded() -> BlockPool:
    """Two shards: device blocks 0-2 and 3-5, host blocks 0-1 and 2-3."""
    return BlockPool(6, num_host_blocks=4, events=BlockEventLog(), num_shards=2)


def test_a_shard_gives_free_blocks_then_its_least_recently_used_content_then_passes_on() -> None:
    blocks = sharded()
    for name in (b"a", b"b"):
        blocks.publish(blocks.take(1), name, parent_name=b"")
    cached = [blocks.find(b"a"), blocks.find(b"b")]
    for block in cached:
        assert block is not None
        blocks.drop(block)
    taken = [blocks.take(1) for _ in range(5)]
    assert taken == [5, *cached, 0, 1]
    assert (blocks.num_available_blocks, blocks.num_used_by_shard) == (1, [2, 3])


def test_copies_keep_content_on_its_shard_while_there_is_room() -> None:
    blocks = sharded()
    block = blocks.take(1)
    blocks.reference(block)
    own = blocks.copy(block)
    blocks.reference(block)
    last = blocks.copy(block)
    blocks.reference(block)
    elsewhere = blocks.copy(block)
    assert [shard // 3 for shard in (block, own, last, elsewhere)] == [1, 1, 1, 0]


def test_both_tiers_keep_content_on_its_shard_while_there_is_room() -> None:
    blocks = sharded()
    out = [blocks.take(1) for _ in range(3)]
    moved = blocks.move_out(out)
    assert moved is not None
    assert [moved[block] // 2 for block in out] == [1, 1, 0]
    for block in out:
        blocks.drop(block)
    blocks.take_copies()
    blocks.take(0)
    blocks.take(0)
    back = blocks.bring_in(list(moved.values()))
    assert [(host_block // 2, block // 3) for host_block, block in back.items()] == [(1, 1), (1, 1), (0, 0)]


def test_a_moved_block_takes_its_references_along_and_its_old_place_rests_until_it_is_read() -> None:
    blocks = sharded()
    blocks.pin("p", (b"a",))
    block = shared(blocks)
    blocks.publish(block, b"a", parent_name=b"")
    place = blocks.move(block, shard=1)
    assert (place // 3, blocks.num_references(place), blocks.num_references(block)) == (1, 3, 0)
    assert (blocks.find(b"a"), blocks.is_pinned(place), blocks.is_pinned(block)) == (place, True, False)
    assert [blocks.take(0), blocks.take(0), blocks.take(0) // 3] == [1, 2, 1]
    assert blocks.take_copies()[2] == [(block, place)]
    assert blocks.take(0) == block


def test_a_block_that_moves_in_the_step_it_comes_in_is_read_from_the_host() -> None:
    blocks = sharded()
    host_block = swapped(blocks)
    block = blocks.bring_in([host_block])[host_block]
    place = blocks.move(block, shard=1)
    assert blocks.take_copies() == ([], [(host_block, place)], [])


def test_a_block_that_moves_and_leaves_the_device_in_one_step_leaves_from_where_it_was() -> None:
    blocks = sharded()
    block = blocks.take(0)
    place = blocks.move(block, shard=1)
    moved = blocks.move_out([place])
    assert moved is not None
    blocks.drop(place)
    assert blocks.take_copies() == ([(block, moved[place])], [], [])
