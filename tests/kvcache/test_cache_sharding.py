"""How groups are to share their caches: the decision by itself."""

import math
import random
from collections.abc import Sequence
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.kvcache.cache_sharding import ShardingLimits, ShardState, decide, ideal_shares

LIMITS = ShardingLimits()
ROOMY = 10**6

speeds = st.lists(st.floats(0.01, 100), min_size=2, max_size=6)


def states(
    *speeds: float | None, weights: Sequence[float] | None = None, num_blocks: Sequence[int] = ()
) -> list[ShardState]:
    """Even shares and all the room there could be, but for what is given."""
    weights = weights or [1 / len(speeds)] * len(speeds)
    room = num_blocks or [ROOMY] * len(speeds)
    return [
        ShardState(weight=weight, num_blocks=blocks, speed=speed)
        for weight, blocks, speed in zip(weights, room, speeds, strict=True)
    ]


def settle(shards: list[ShardState], *, num_used_blocks: int = 1) -> list[list[ShardState]]:
    """What follows from one decision after the other, until there is none; the first entry is the start."""
    history = [shards]
    while (weights := decide(history[-1], num_used_blocks=num_used_blocks)) is not None:
        history.append(
            [
                ShardState(weight=weight, num_blocks=shard.num_blocks, speed=shard.speed)
                for weight, shard in zip(weights, shards, strict=True)
            ]
        )
        assert len(history) < 50, "it goes on and on"
    return history


def test_shares_are_even_by_default_and_stay_so() -> None:
    assert decide(states(None, None, None), num_used_blocks=100) is None
    assert decide(states(3.0, 3.0), num_used_blocks=100) is None


def test_what_was_decided_before_a_restart_stays_until_speeds_are_known() -> None:
    assert decide(states(None, None, weights=[0.7, 0.3]), num_used_blocks=100) is None
    assert decide(states(1.0, None, weights=[0.7, 0.3]), num_used_blocks=100) is None


def test_a_slow_shard_gets_less_step_by_step() -> None:
    weights = [[shard.weight for shard in shards] for shards in settle(states(3.0, 1.0))]
    assert weights == [[0.5, 0.5], [0.625, 0.375], [0.75, 0.25]]


def test_a_shard_without_a_share_gets_the_least_one() -> None:
    (*_, last) = settle(states(None, None, weights=[1.0, 0.0]))
    assert [shard.weight for shard in last] == [0.875, 0.125]


def test_what_a_quick_shard_has_no_room_for_goes_to_the_others_in_proportion() -> None:
    shares = ideal_shares(states(6.0, 2.0, 1.0, num_blocks=[100, 100, 100]), num_used_blocks=200)
    assert shares == pytest.approx((0.5, 1 / 3, 1 / 6))


def test_a_full_cache_is_shared_as_the_room_is() -> None:
    assert ideal_shares(states(9.0, 1.0, num_blocks=[30, 10]), num_used_blocks=40) == pytest.approx((0.75, 0.25))
    assert ideal_shares(states(9.0, 1.0, num_blocks=[10, 30]), num_used_blocks=40) == pytest.approx((0.25, 0.75))


@given(speeds)
def test_shares_are_in_proportion_to_the_speeds_between_the_bounds(speeds: list[float]) -> None:
    shares = ideal_shares(states(*speeds), num_used_blocks=1)
    least = LIMITS.min_share / len(speeds)
    assert math.isclose(sum(shares), 1)
    assert min(shares) >= least - 1e-9
    free = [(share / speed) for share, speed in zip(shares, speeds, strict=True) if share > least * 1.001]
    assert max(free, default=1) <= min(free, default=1) * (1 + 1e-6)


@given(st.data())
def test_shares_respect_the_room_and_are_the_best_that_do(data: st.DataObject) -> None:
    """The best: a step over blocks shared so takes least, which is the oracle's choice among all that fit a grid."""
    num_shards = data.draw(st.integers(2, 3))
    speeds = data.draw(st.lists(st.integers(1, 5), min_size=num_shards, max_size=num_shards))
    room = data.draw(st.lists(st.integers(2, 12), min_size=num_shards, max_size=num_shards))
    used = data.draw(st.integers(1, sum(room)))
    free_of_floors = ShardingLimits(min_share=0.0)
    shares = ideal_shares(states(*speeds, num_blocks=room), num_used_blocks=used, limits=free_of_floors)
    assert math.isclose(sum(shares), 1)
    assert all(share * used <= blocks + 1e-6 for share, blocks in zip(shares, room, strict=True))
    counts = [c for c in product(*(range(blocks + 1) for blocks in room)) if sum(c) == used]
    best = min(max(count / speed for count, speed in zip(choice, speeds, strict=True)) for choice in counts)
    assert max(used * share / speed for share, speed in zip(shares, speeds, strict=True)) <= best + 1e-6


@given(speeds, st.integers(1, 200), st.integers(0, 2**32))
def test_decisions_change_little_at_once_and_come_to_an_end_near_the_ideal(
    speeds: list[float], num_used_blocks: int, seed: int
) -> None:
    draw = random.Random(seed)
    parts = [draw.random() + 1e-3 for _ in speeds]
    start = states(*speeds, weights=[part / sum(parts) for part in parts], num_blocks=[200] * len(speeds))
    history = settle(start, num_used_blocks=num_used_blocks)
    even = 1 / len(speeds)
    for before, after in pairwise(history):
        changes = [abs(old.weight - new.weight) for old, new in zip(before, after, strict=True)]
        assert max(changes) <= LIMITS.max_change * even + 1e-9
        assert math.isclose(sum(shard.weight for shard in after), 1)
    ideal = ideal_shares(start, num_used_blocks=num_used_blocks)
    for share, shard in zip(ideal, history[-1], strict=True):
        assert abs(share - shard.weight) <= LIMITS.threshold * even + 1e-9


@given(speeds, st.integers(0, 2**32))
def test_speeds_that_waver_by_a_twentieth_change_nothing_once_it_has_settled(speeds: list[float], seed: int) -> None:
    draw = random.Random(seed)
    weights = ideal_shares(states(*speeds), num_used_blocks=1)
    for _ in range(20):
        wavering = [speed * draw.uniform(0.98, 1.02) for speed in speeds]
        assert decide(states(*wavering, weights=weights), num_used_blocks=1) is None
