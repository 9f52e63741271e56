"""Groups are told how to share their caches, over real sockets."""

from collections.abc import AsyncIterator

import pytest
from prometheus_client import REGISTRY

from headway.kvcache.service import KvCacheService
from headway.store.redis import Database
from headway.v1 import kvcache_pb2
from tests.kvcache.conftest import StartKvCache
from tests.kvcache.sharded import WORKER_IDS, ShardedWorker
from tests.router.harness import eventually

Group = tuple[ShardedWorker, ShardedWorker]
OFTEN_S = 0.01


@pytest.fixture
async def group(database: Database) -> AsyncIterator[Group]:
    async with (
        ShardedWorker.running(database, WORKER_IDS[0]) as leader,
        ShardedWorker.running(database, WORKER_IDS[1], rank=1) as rank,
    ):
        yield leader, rank


async def test_equal_ranks_are_left_as_they_are(group: Group, caching: StartKvCache) -> None:
    leader, _ = group
    async with caching(sharding_every_s=OFTEN_S):
        await eventually(lambda: leader._num_looks > 20)
    assert leader.told == []


async def test_a_slow_rank_gets_less_step_by_step_and_more_when_it_is_quick_again(
    group: Group, caching: StartKvCache
) -> None:
    leader, rank = group
    rank.keys_per_s = 5_000
    async with caching(sharding_every_s=OFTEN_S):
        await eventually(lambda: len(leader.told) > 0 and leader.weights[1] == pytest.approx(1 / 3, abs=0.06))
        assert all(
            abs(after[0] - before[0]) <= 0.125 + 1e-9
            for before, after in zip([[0.5, 0.5], *leader.told], leader.told, strict=False)
        )
        rank.keys_per_s = 10_000
        await eventually(lambda: leader.weights[1] == pytest.approx(1 / 2, abs=0.06))
        assert len(leader.told) < 10


async def test_what_was_decided_holds_through_a_restart_and_is_told_again(group: Group, caching: StartKvCache) -> None:
    leader, _ = group
    leader.weights = [0.7, 0.3]
    async with caching() as kvcache:  # whose second look is far away: it has measured nothing
        await eventually(lambda: bool(kvcache.service.capacity().workers) and len(shares(kvcache.service)) == 2)
        assert shares(kvcache.service) == [("worker-0", 0.7), ("worker-1", 0.3)]
        (told,) = (await kvcache.capacity()).workers
        assert [(list(shard.worker_ids), shard.num_used_blocks, shard.num_free_blocks) for shard in told.shards] == [
            (["worker-0"], 10, 90),
            (["worker-1"], 10, 90),
        ]
        await eventually(lambda: metric("kv_shard_weight", shard="0") == 0.7)
        await eventually(lambda: metric("kv_shard_used_blocks", shard="1") == 10)
    assert leader.told == []


async def test_shares_give_way_where_there_is_no_room_for_them(group: Group, caching: StartKvCache) -> None:
    leader, _ = group
    leader.weights, leader.num_used_blocks = [0.6, 0.4], [100, 100]
    async with caching():
        await eventually(lambda: len(leader.told) == 1)
    assert leader.weights == pytest.approx([0.5, 0.5])


async def test_a_cache_that_begins_anew_is_looked_at_anew(group: Group, caching: StartKvCache) -> None:
    leader, rank = group
    rank.keys_per_s = 5_000
    async with caching(sharding_every_s=OFTEN_S):
        await eventually(lambda: len(leader.told) > 0)
        leader.weights, leader.cache_epoch = [0.5, 0.5], "cache-2"
        num_told = len(leader.told)
        await eventually(lambda: len(leader.told) > num_told)
    assert leader.weights[1] < 0.5


async def test_a_group_without_one_of_its_ranks_keeps_its_shares_and_one_that_is_gone_is_forgotten(
    database: Database, caching: StartKvCache
) -> None:
    async with ShardedWorker.running(database, WORKER_IDS[0]) as leader, caching(sharding_every_s=OFTEN_S) as kvcache:
        await eventually(lambda: leader._num_looks > 20)
        assert len(shares(kvcache.service)) == 2
        await leader.leave()
        await eventually(lambda: metric("kv_shard_weight", shard="0") is None, timeout_s=10)
        assert leader.told == []


async def test_a_worker_that_leaves_while_it_is_asked_holds_up_no_other_group(
    database: Database, caching: StartKvCache
) -> None:
    async with caching(sharding_every_s=OFTEN_S), ShardedWorker.running(database, "worker-8") as leaver:
        leaver.answers.clear()
        await eventually(lambda: leaver._num_looks > 0)
        await leaver.let_lease_lapse()
        async with ShardedWorker.running(database, WORKER_IDS[0]) as leader:
            await eventually(lambda: leader._num_looks > 2)
        leaver.answers.set()


async def test_a_request_tells_who_has_which_of_its_tokens(group: Group, caching: StartKvCache) -> None:
    async with caching() as kvcache:
        await eventually(lambda: bool(kvcache.service.capacity().workers))
        response = await kvcache.stub.DescribeRequest(kvcache_pb2.DescribeRequestRequest(request_id="a"))
    (part,) = response.parts
    (sequence,) = part.sequences
    assert [(span.start, span.stop, span.shard, list(span.worker_ids)) for span in sequence.ranges] == [
        (0, 16, 0, ["worker-0"]),
        (16, 32, 1, ["worker-1"]),
        (32, 35, 0, ["worker-0"]),
    ]


def shares(service: KvCacheService) -> list[tuple[str, float]]:
    """Who has which share, as GetCapacity would tell."""
    (worker,) = service.capacity().workers
    return [(shard.worker_ids[0], shard.weight) for shard in worker.shards]


def metric(name: str, *, shard: str) -> float | None:
    return REGISTRY.get_sample_value(f"headway:{name}", {"worker_id": "worker-0", "shard": shard})
