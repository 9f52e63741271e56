"""The service over real sockets: streams that break, skip, start anew and drift."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace

from headway.store.redis import Database
from tests.kvcache.conftest import RunningKvCache, StartKvCache
from tests.kvcache.scripted import CachingWorker
from tests.router.harness import eventually
from tests.router.scripted import IDLE

A, B, C, D = (bytes([i]) * 16 for i in range(4))


async def until(kvcache: RunningKvCache, matches: dict[str, int], *, timeout_s: float = 60.0) -> None:
    """Until the prompt A B C D is answered so."""
    deadline_s = time.monotonic() + timeout_s
    while (found := await kvcache.lookup(A, B, C, D)) != matches:
        assert time.monotonic() < deadline_s, found
        await asyncio.sleep(0.005)


def snapshots(kvcache: RunningKvCache) -> Callable[[], int]:
    """How many snapshots of the first worker were taken in."""
    return lambda: sum(worker.num_snapshots for worker in kvcache.service.capacity().workers)


async def test_the_holders_of_a_prefix_are_told_the_longest_first(database: Database, caching: StartKvCache) -> None:
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(CachingWorker.running(database, f"worker-{i}")) for i in range(3)]
        workers[0].store(A)
        workers[1].store(A, B, C)
        kvcache = await stack.enter_async_context(caching())
        await until(kvcache, {"worker-1": 3, "worker-0": 1})
        assert list(await kvcache.lookup(A, B, C)) == ["worker-1", "worker-0"]
        workers[2].store(A, B, C, D)
        workers[1].remove(B)
        await until(kvcache, {"worker-2": 4, "worker-0": 1, "worker-1": 1})


async def test_only_workers_of_the_model_are_told(database: Database, caching: StartKvCache) -> None:
    async with AsyncExitStack() as stack:
        other = replace(IDLE, model="opt")
        llama = await stack.enter_async_context(CachingWorker.running(database, "worker-0"))
        opt = await stack.enter_async_context(CachingWorker.running(database, "worker-1", load=other))
        for worker in (llama, opt):
            worker.store(A, B)
        kvcache = await stack.enter_async_context(caching())
        await until(kvcache, {"worker-0": 2})
        assert await kvcache.lookup(A, B, model="opt") == {"worker-1": 2}


async def test_of_a_group_only_the_leader_is_followed(database: Database, caching: StartKvCache) -> None:
    async with AsyncExitStack() as stack:
        leader = await stack.enter_async_context(CachingWorker.running(database, "worker-0"))
        rank = await stack.enter_async_context(CachingWorker.running(database, "worker-1", rank=1))
        for worker in (leader, rank):
            worker.store(A)
        kvcache = await stack.enter_async_context(caching())
        await until(kvcache, {"worker-0": 1})
        assert [worker.worker_id for worker in (await kvcache.capacity()).workers] == ["worker-0"]
        assert rank.requests == []


async def test_missing_events_bring_a_snapshot(database: Database, caching: StartKvCache) -> None:
    async with CachingWorker.running(database, "worker-0") as worker, caching() as kvcache:
        worker.store(A)
        await until(kvcache, {"worker-0": 1})
        worker.skip_events(3)
        worker.store(B)
        await until(kvcache, {"worker-0": 2})
        assert snapshots(kvcache)() == 2


async def test_a_broken_stream_goes_on_where_it_was(database: Database, caching: StartKvCache) -> None:
    async with CachingWorker.running(database, "worker-0") as worker, caching() as kvcache:
        worker.store(A, B)
        await until(kvcache, {"worker-0": 2})
        worker.cut_stream()
        worker.store(C)
        await until(kvcache, {"worker-0": 3})
        assert worker.requests == [("", 0), ("epoch-1-of-worker-0", 2)]
        assert snapshots(kvcache)() == 1


async def test_a_cache_that_starts_anew_is_taken_in_anew(database: Database, caching: StartKvCache) -> None:
    async with CachingWorker.running(database, "worker-0") as worker, caching() as kvcache:
        worker.store(A, B)
        await until(kvcache, {"worker-0": 2})
        worker.start_anew()
        worker.store(A)
        await until(kvcache, {"worker-0": 1})
        assert kvcache.service.capacity().workers[0].num_drifted_blocks == 0


async def test_a_worker_that_crashed_is_forgotten_and_its_successor_starts_from_nothing(
    database: Database, caching: StartKvCache
) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(CachingWorker.running(database, "worker-0"))
        kvcache = await stack.enter_async_context(caching())
        first.store(A, B)
        await until(kvcache, {"worker-0": 2})
        await first.crash()
        second = await stack.enter_async_context(CachingWorker.running(database, "worker-0"))
        second.store(A)
        await until(kvcache, {"worker-0": 1})


async def test_a_worker_that_left_is_forgotten(database: Database, caching: StartKvCache) -> None:
    async with AsyncExitStack() as stack:
        stayer = await stack.enter_async_context(CachingWorker.running(database, "worker-0"))
        leaver = await stack.enter_async_context(CachingWorker.running(database, "worker-1"))
        kvcache = await stack.enter_async_context(caching())
        stayer.store(A)
        leaver.store(A, B)
        await until(kvcache, {"worker-1": 2, "worker-0": 1})
        await leaver.leave()
        await until(kvcache, {"worker-0": 1})
        capacity = await kvcache.capacity()
        assert [worker.worker_id for worker in capacity.workers] == ["worker-0"]
        assert capacity.num_distinct_blocks == 1


async def test_capacity_tells_sizes_and_what_the_index_knows(database: Database, caching: StartKvCache) -> None:
    async with CachingWorker.running(database, "worker-0") as worker, caching() as kvcache:
        worker.store(A, B)
        worker.report(num_free_blocks=1000)
        await until(kvcache, {"worker-0": 2})
        await eventually(lambda: kvcache.service.capacity().workers[0].num_free_blocks == 1000)
        (told,) = (await kvcache.capacity()).workers
        assert (told.model, told.block_size, told.num_blocks, told.num_free_blocks) == ("llama", 16, 1024, 1000)
        assert (told.num_indexed_blocks, told.sequence_number, told.num_drifted_blocks) == (2, 2, 0)


async def test_reconciliation_finds_what_a_worker_kept_silent(database: Database, caching: StartKvCache) -> None:
    async with CachingWorker.running(database, "worker-0") as worker, caching(reconcile_every_s=0.3) as kvcache:
        worker.store(A, B, C)
        await until(kvcache, {"worker-0": 3})
        worker.lose_silently(C)
        await until(kvcache, {"worker-0": 2})
        (told,) = (await kvcache.capacity()).workers
        assert told.num_drifted_blocks == 1
        num_before = snapshots(kvcache)()
        await eventually(lambda: snapshots(kvcache)() > num_before)
        assert kvcache.service.capacity().workers[0].num_drifted_blocks == 1
        assert set(worker.requests) == {("", 0)}


async def test_a_restarted_service_learns_everything_again(database: Database, caching: StartKvCache) -> None:
    async with CachingWorker.running(database, "worker-0") as worker:
        worker.store(A, B, C)
        async with caching() as kvcache:
            await until(kvcache, {"worker-0": 3})
        worker.remove(C)
        async with caching() as kvcache:
            await until(kvcache, {"worker-0": 2})
