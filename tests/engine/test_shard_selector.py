import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidArgumentError
from headway.engine.shard_selector import ShardSelector

WEIGHTS = st.lists(st.integers(1, 20), min_size=1, max_size=8)
ROOMY = 1_000_000


def shard_selector(weights: list[int], *, num_blocks: int = ROOMY) -> ShardSelector:
    made = ShardSelector(len(weights), num_blocks=num_blocks)
    made.set_weights(weights)
    return made


@settings(derandomize=True, deadline=None)
@given(weights=WEIGHTS, others=st.lists(st.integers(0, 300), min_size=8, max_size=8))
def test_a_sequence_is_never_more_than_a_block_away_from_its_shares(weights: list[int], others: list[int]) -> None:
    shards, own, used = shard_selector(weights), [0] * len(weights), others[: len(weights)]
    for num_blocks in range(1, 200):
        shard = shards.choose(own, used)
        own[shard] += 1
        used[shard] += 1
        for count, weight in zip(own, shards.weights, strict=True):
            assert abs(count - weight * num_blocks) <= 1 + 1e-9


@pytest.mark.parametrize("length", [1, 2, 3, 5, 40])
def test_what_short_sequences_leave_to_rounding_does_not_add_up_on_one_shard(length: int) -> None:
    shards, used = ShardSelector(4, num_blocks=ROOMY), [0] * 4
    for _ in range(50):
        own = [0] * 4
        for _ in range(length):
            shard = shards.choose(own, used)
            own[shard] += 1
            used[shard] += 1
    assert max(used) - min(used) <= 1


def test_single_blocks_follow_the_weights_together() -> None:
    shards, used = shard_selector([6, 3, 1]), [0, 0, 0]
    for _ in range(100):
        used[shards.choose([0, 0, 0], used)] += 1
    assert used == [60, 30, 10]


def test_a_full_shard_is_passed_over_and_its_share_is_caught_up_later() -> None:
    shards = ShardSelector(3, num_blocks=10)
    own, used = [0, 0, 0], [10, 2, 2]
    for _ in range(6):
        shard = shards.choose(own, used)
        own[shard] += 1
        used[shard] += 1
    assert own == [0, 3, 3]
    used[0] = 0
    for _ in range(3):
        own[shards.choose(own, used)] += 1
    assert own == [3, 3, 3]


def test_a_shard_without_weight_is_used_where_no_other_has_room() -> None:
    shards = shard_selector([0, 1], num_blocks=2)
    assert shards.choose([0, 0], [0, 1]) == 1
    assert shards.choose([0, 2], [0, 2]) == 0
    assert shards.choose([0, 0], [1, 2]) == 0


@pytest.mark.parametrize("weights", [[], [1.0], [1, 1, 1], [1, -1], [0, 0], [math.nan, 1], [math.inf, 1]])
def test_weights_that_say_nothing_are_refused(weights: list[float]) -> None:
    shards = shard_selector([1, 3])
    with pytest.raises(InvalidArgumentError, match="2 are needed"):
        shards.set_weights(weights)
    assert shards.weights == (0.25, 0.75)


@settings(derandomize=True, deadline=None)
@given(weights=WEIGHTS, seed=st.integers(0, 99))
def test_moves_end_at_the_best_that_moving_blocks_can_do(weights: list[int], seed: int) -> None:
    """No split of the blocks has a lower highest load than greedy filling, block by block."""
    draw = random.Random(seed)
    shards, loads = shard_selector(weights), [draw.randint(0, 30) for _ in weights]
    costs, used, num_blocks = [1 / weight for weight in shards.weights], [0] * len(weights), sum(loads)
    for num_moves in itertools.count():
        move = shards.next_move(loads, used=used)
        if move is None:
            break
        source, destination = move
        loads[source] -= 1
        loads[destination] += 1
        assert num_moves < num_blocks
    best = [0] * len(weights)
    for _ in range(num_blocks):
        best[min(range(len(best)), key=lambda shard: (best[shard] + 1) * costs[shard])] += 1
    assert shards.imbalance(loads) == pytest.approx(shards.imbalance(best))


def test_the_imbalance_is_the_highest_load_over_its_share() -> None:
    assert shard_selector([1, 1]).imbalance([30, 10]) == 1.5
    assert shard_selector([3, 1]).imbalance([30, 10]) == 1
    assert shard_selector([1, 1]).imbalance([0, 0]) == 1
    assert shard_selector([0, 1]).imbalance([1, 9]) == math.inf
