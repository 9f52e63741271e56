"""What the figures of a group's workers say about the speeds of its shards."""

import pytest

from headway.core.cache_sharding import ShardWork
from headway.kvcache.shard_speeds import ShardSpeeds


class Ranks:
    """Workers that read so many keys a second, by shard; `run` lets them work at the same time.

    A call takes them as long as `overhead` keys more would.
    """

    def __init__(self, *rates: tuple[float, ...], overhead: int = 1024) -> None:
        self.overhead = overhead
        self.rates = [list(shard) for shard in rates]
        self._works = [[ShardWork()] * len(shard) for shard in rates]

    def run(self, *, num_keys: tuple[int, ...], num_calls: int = 10) -> list[list[ShardWork]]:
        self._works = [
            [
                ShardWork(
                    num_calls=work.num_calls + num_calls,
                    num_keys=work.num_keys + keys,
                    seconds=work.seconds + (keys + self.overhead * num_calls) / rate,
                )
                for work, rate in zip(shard, rates, strict=True)
            ]
            for shard, rates, keys in zip(self._works, self.rates, num_keys, strict=True)
        ]
        return self._works


def told(speeds: ShardSpeeds, num_shards: int = 2) -> list[float | None]:
    return [speeds.speed(shard) for shard in range(num_shards)]


def test_nothing_is_known_before_the_second_look() -> None:
    ranks, speeds = Ranks((1e5,), (1e5,)), ShardSpeeds()
    assert told(speeds) == [None, None]
    speeds.observe(ranks.run(num_keys=(10**5, 10**5)))
    assert told(speeds) == [None, None]


@pytest.mark.parametrize("num_keys", [(10**5, 10**5), (3 * 10**5, 10**5)])
def test_speeds_are_those_of_the_ranks_whatever_they_have_to_do(num_keys: tuple[int, int]) -> None:
    ranks, speeds = Ranks((3e5,), (1e5,)), ShardSpeeds()
    for _ in range(3):
        speeds.observe(ranks.run(num_keys=num_keys))
    assert told(speeds) == pytest.approx([0.75, 0.25])


def test_a_shard_is_as_quick_as_the_slowest_of_its_workers() -> None:
    ranks, speeds = Ranks((3e5, 1e5), (2e5, 1e5)), ShardSpeeds()
    for _ in range(2):
        speeds.observe(ranks.run(num_keys=(10**5, 10**5)))
    assert told(speeds) == pytest.approx([0.5, 0.5])


def test_steps_with_little_to_read_say_nothing() -> None:
    ranks, speeds = Ranks((3e5,), (1e5,)), ShardSpeeds()
    for _ in range(5):
        speeds.observe(ranks.run(num_keys=(10**5, 10**5), num_calls=10**4))
    assert told(speeds) == [None, None]


def test_short_looks_are_put_together() -> None:
    ranks, speeds = Ranks((3e5,), (1e5,)), ShardSpeeds()
    for _ in range(4):  # the quick one takes 13 ms
        speeds.observe(ranks.run(num_keys=(3000, 3000), num_calls=1))
        assert told(speeds) == [None, None]
    speeds.observe(ranks.run(num_keys=(3000, 3000), num_calls=1))
    assert told(speeds) == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("overhead", [0, 100, 10_000])
@pytest.mark.parametrize("ratio", [1, 2])
def test_shares_that_follow_them_settle_near_the_speeds_whatever_a_call_takes(overhead: int, ratio: int) -> None:
    """Also from shares that are far off: one that reads little is not taken for slow."""
    ranks, speeds, share = Ranks((ratio * 1e5,), (1e5,), overhead=overhead), ShardSpeeds(), 0.85
    for _ in range(60):
        num_keys = round(share * 40_000)
        speeds.observe(ranks.run(num_keys=(num_keys, 40_000 - num_keys), num_calls=10))
        share = speeds.speed(0) or share
    assert share == pytest.approx(ratio / (ratio + 1), abs=0.12)


def test_one_odd_look_moves_them_by_a_part_and_later_ones_bring_them_back() -> None:
    ranks, speeds = Ranks((1e5,), (1e5,)), ShardSpeeds()
    for rate in (1e5, 1e5, 0.25e5, 1e5):
        ranks.rates[1] = [rate]
        speeds.observe(ranks.run(num_keys=(10**5, 10**5)))
        if rate < 1e5:
            assert told(speeds) == pytest.approx([0.56, 0.44])
    assert told(speeds) == pytest.approx([0.548, 0.452])


def test_workers_that_begin_anew_are_measured_anew() -> None:
    speeds = ShardSpeeds()
    ranks = Ranks((3e5,), (1e5,))
    for _ in range(2):
        speeds.observe(ranks.run(num_keys=(10**5, 10**5)))
    fresh = Ranks((3e5,), (1e5,))
    speeds.observe(fresh.run(num_keys=(5 * 10**4, 5 * 10**4)))
    assert told(speeds) == pytest.approx([0.75, 0.25])
    speeds.observe(fresh.run(num_keys=(10**5, 10**5)))
    assert told(speeds) == pytest.approx([0.75, 0.25])
