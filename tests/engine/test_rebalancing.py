"""Blocks that move between shards. That sequences keep their content is shown by the walks of the block manager."""

import math
from collections.abc import Iterable

import pytest

from headway.core.errors import InvalidArgumentError
from headway.core.request import SamplingParams
from headway.engine.block_manager import BlockManager
from headway.engine.config import EngineConfig
from headway.engine.pins import PinnedPrefix
from headway.engine.rebalancing import Rebalancer
from headway.engine.sequence import Sequence

BLOCK_SIZE = 4
NUM_BLOCKS_EACH = 16


def manager(num_shards: int = 2, **options: int) -> BlockManager:
    return BlockManager(num_shards * NUM_BLOCKS_EACH, block_size=BLOCK_SIZE, num_shards=num_shards, **options)


def computed(blocks: BlockManager, tokens: Iterable[int]) -> Sequence:
    token_ids = list(tokens)
    sequence = Sequence("s", token_ids, len(token_ids), SamplingParams(), arrival_s=0.0)
    blocks.adopt(sequence, prefix=blocks.find_prefix(sequence))
    assert blocks.grow(sequence, num_tokens=len(sequence))
    sequence.num_computed_tokens = len(sequence)
    blocks.publish(sequence)
    return sequence


def spread(sequence: Sequence, num_shards: int = 2) -> list[int]:
    shards = [block // NUM_BLOCKS_EACH for block in sequence.block_table]
    return [shards.count(shard) for shard in range(num_shards)]


def test_moving_stops_when_the_weights_are_met_and_each_sequence_has_its_share() -> None:
    blocks = manager()
    sequences = [computed(blocks, range(start, start + 32)) for start in (0, 100)]
    assert [spread(sequence) for sequence in sequences] == [[4, 4], [4, 4]]
    assert blocks.rebalance(sequences, max_moves=99) == 0
    blocks.set_shard_weights([3, 1])
    assert blocks.imbalance == 2
    assert [blocks.rebalance(sequences, max_moves=3), blocks.rebalance(sequences, max_moves=3)] == [3, 1]
    assert blocks.rebalance(sequences, max_moves=3) == 0
    assert [spread(sequence) for sequence in sequences] == [[6, 2], [6, 2]]
    assert (blocks.imbalance, blocks.num_moved_blocks) == (1, 4)
    assert blocks.num_used_blocks == 20  # the old places rest until the copies are taken
    blocks.take_copies()
    assert blocks.num_used_blocks == 16
    blocks.check_integrity(sequences)


def test_a_shared_pinned_block_moves_once_for_all_and_stays_known() -> None:
    blocks = manager()
    blocks.pin("system", range(16))
    first = computed(blocks, range(16))
    child = Sequence("s", [*range(16), 50], 17, SamplingParams(), arrival_s=0.0)
    blocks.fork(first, child)
    used = blocks.num_used_blocks
    blocks.set_shard_weights([1, 0])
    assert blocks.rebalance([first, child], max_moves=99) == 2
    assert first.block_table == child.block_table
    assert spread(first) == [4, 0]
    assert len(blocks.take_copies()[2]) == 2
    assert blocks.num_used_blocks == used
    assert blocks.pinned_prefixes() == [PinnedPrefix("system", num_blocks=4, num_resident_blocks=4)]
    blocks.check_integrity([first, child])
    later = computed(blocks, range(20))
    assert later.block_table[:4] == first.block_table


def test_the_block_that_is_being_written_stays() -> None:
    blocks = manager()
    sequence = computed(blocks, range(7))
    blocks.set_shard_weights([1, 0])
    last = sequence.block_table[-1]
    blocks.rebalance([sequence], max_moves=99)
    assert sequence.block_table[-1] == last
    blocks.set_shard_weights([0, 1])
    blocks.rebalance([sequence], max_moves=99)
    assert sequence.block_table[-1] == last


def test_what_only_pins_hold_does_not_push_sequences_away() -> None:
    blocks = manager()
    blocks.set_shard_weights([1, 0])
    blocks.pin("system", range(40))
    blocks.free(computed(blocks, range(40)))
    blocks.set_shard_weights([1, 1])
    sequence = computed(blocks, range(100, 132))
    assert spread(sequence) == [4, 4]
    assert blocks.imbalance == 1
    assert blocks.rebalance([sequence], max_moves=99) == 0


def test_a_full_shard_stops_nobody_while_another_has_room() -> None:
    blocks = manager(num_host_blocks=32)
    blocks.set_shard_weights([1, 0])
    first = computed(blocks, range(60))
    second = computed(blocks, range(100, 168))
    assert (spread(first), spread(second)) == ([15, 0], [1, 16])
    assert blocks.num_available_blocks == 0
    child = Sequence("s", [*range(100, 168), 1], 69, SamplingParams(), arrival_s=0.0)
    assert not blocks.grow(child, num_tokens=4)
    assert blocks.swap_out([first])
    assert {block // NUM_BLOCKS_EACH for block in first.host_block_table} == {0}
    assert blocks.grow(child, num_tokens=60)
    blocks.take_copies()
    blocks.free(second)
    blocks.swap_in([first])
    assert sum(spread(first)) == 15
    blocks.check_integrity([first, child])


def test_the_rebalancer_looks_seldom_moves_little_and_lets_small_differences_be() -> None:
    config = EngineConfig(
        num_blocks=32,
        max_model_len=100,
        block_size=BLOCK_SIZE,
        num_shards=2,
        rebalance_every_steps=3,
        rebalance_threshold=1.5,
        max_rebalance_moves=1,
    )
    blocks = manager()
    rebalancer = Rebalancer(config, blocks=blocks)
    sequence = computed(blocks, range(32))
    moved = []
    for weights in [[1, 1], [2, 1], [3, 1]]:
        blocks.set_shard_weights(weights)
        for _ in range(6):
            rebalancer.advance([sequence])
            blocks.take_copies()
            moved.append(blocks.num_moved_blocks)
    assert moved == [*[0] * 6, *[0] * 6, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("weights", [[math.inf, -math.inf], [1e308, 1e308], [math.nan, 1], [-1, 2], [0, 0], [1]])
def test_weights_that_no_shards_can_have_are_refused(weights: list[float]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        manager().set_shard_weights(weights)
    assert caught.value.field == "weights"
