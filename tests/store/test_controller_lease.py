"""Which controller may act: one at a time, each with a higher epoch, whatever stands still meanwhile."""

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from headway.observe.process_start import has_ended, own_run, process_start
from headway.store.controller_lease import ControllerLease
from headway.store.redis import Database
from headway.store.schema import CONTROLLER_EPOCH, CONTROLLER_LEASE

ELSEWHERE = "7 another-boot/1"


@pytest.fixture
async def lease_key(database: Database) -> AsyncIterator[str]:
    yield CONTROLLER_LEASE.key(database.namespace)
    await database.redis.delete(CONTROLLER_LEASE.key(database.namespace), CONTROLLER_EPOCH.key(database.namespace))


async def acquired(lease: ControllerLease) -> bool:
    return await asyncio.wait_for(lease.acquire(until=asyncio.Event()), timeout=30)


async def test_the_second_controller_waits_and_has_a_higher_epoch_when_its_turn_comes(
    database: Database, lease_key: str
) -> None:
    first, second = (ControllerLease(database, run=run, has_ended=has_ended) for run in (ELSEWHERE, own_run()))
    assert await acquired(first)
    waiting = asyncio.create_task(acquired(second))
    await asyncio.sleep(0.6)
    assert not waiting.done()
    await database.redis.delete(lease_key)  # as if it had not been renewed for its time to live
    assert await waiting
    assert second.epoch == first.epoch + 1
    assert await second.may_act()


async def test_a_controller_that_died_here_is_followed_at_once(database: Database, lease_key: str) -> None:
    """What holds the lease is known to have ended, so nobody waits until it lapses."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    dead = f"{process.pid} {process_start(process.pid)}"
    process.kill()
    await process.wait()
    for run, epoch in ((dead, 1), (own_run(), 2)):
        lease = ControllerLease(database, run=run, has_ended=has_ended)
        assert await acquired(lease)
        assert lease.epoch == epoch


async def test_a_controller_that_stood_still_finds_that_it_has_been_replaced(
    database: Database, lease_key: str
) -> None:
    now_s, lost = 0.0, asyncio.Event()
    first = ControllerLease(database, run=ELSEWHERE, has_ended=has_ended, clock=lambda: now_s)
    assert await acquired(first)
    await database.redis.delete(lease_key)
    second = ControllerLease(database, run=own_run(), has_ended=has_ended)
    assert await acquired(second)
    now_s += 60.0
    assert not await first.may_act()
    await asyncio.wait_for(first.keep(on_loss=lost.set), timeout=30)
    assert lost.is_set()
    assert await second.may_act()


async def test_a_lease_that_lapsed_and_that_nobody_took_is_still_ones_own(database: Database, lease_key: str) -> None:
    """Redis refuses writes for longer than the lease lasts, or has lost it."""
    now_s = 0.0
    lease = ControllerLease(database, run=own_run(), has_ended=has_ended, clock=lambda: now_s)
    assert await acquired(lease)
    await database.redis.delete(lease_key)
    now_s += 60.0
    assert await lease.may_act()
    assert await database.redis.get(lease_key) == f"{lease.epoch} {own_run()}"


async def test_without_redis_nobody_acts_for_longer_than_the_lease_lasts(database: Database, lease_key: str) -> None:
    now_s = 0.0
    lease = ControllerLease(database, run=own_run(), has_ended=has_ended, clock=lambda: now_s)
    assert await acquired(lease)
    away = Database.connect("redis://127.0.0.1:1", namespace=database.namespace)
    lease._redis = away.redis
    assert await lease.may_act()
    now_s += 60.0
    assert not await lease.may_act()
    await away.close()


async def test_who_stands_by_when_the_stack_is_shut_down_ends_and_who_comes_later_begins(
    database: Database, lease_key: str
) -> None:
    first, second, third = (
        ControllerLease(database, run=run, has_ended=has_ended) for run in (ELSEWHERE, own_run(), own_run())
    )
    assert await acquired(first)
    waiting = asyncio.create_task(acquired(second))
    await asyncio.sleep(0.4)
    await first.end()
    assert not await waiting
    assert await acquired(third)
    assert third.epoch == 2


async def test_pid_1_of_another_container_of_this_machine_may_live() -> None:
    """Its pids are not ours, so the kernel cannot be asked after it; its lease lapses."""
    boot, _, ticks = str(process_start(1)).split("/")
    assert not has_ended(f"1 {boot}/pid:[1]/{ticks}0")
    assert has_ended(f"1 {process_start(1)!s}0")


async def test_a_redis_that_has_lost_the_lease_is_written_again_by_who_holds_it_with_the_same_epoch(
    database: Database, lease_key: str
) -> None:
    """One that stands by lets it, and takes over with a higher epoch where it does not."""
    now_s, epoch_key = 0.0, CONTROLLER_EPOCH.key(database.namespace)
    await database.redis.set(epoch_key, 6)
    first = ControllerLease(database, run=ELSEWHERE, has_ended=has_ended, clock=lambda: now_s)
    assert await acquired(first)
    later_s = 0.0
    second = ControllerLease(database, run=own_run(), has_ended=has_ended, clock=lambda: later_s)
    waiting = asyncio.create_task(acquired(second))
    await asyncio.sleep(0.6)
    await database.redis.delete(lease_key, epoch_key)
    await asyncio.sleep(0.6)
    assert not waiting.done()
    now_s += 60.0
    assert await first.may_act()
    assert await database.redis.get(epoch_key) == str(first.epoch)
    await asyncio.sleep(0.6)
    await database.redis.delete(lease_key, epoch_key)
    later_s += 60.0
    assert await waiting
    assert second.epoch > first.epoch


async def test_who_waits_when_the_clock_is_set_back_waits_no_longer_than_a_lease_lasts(
    database: Database, lease_key: str
) -> None:
    """The first one died elsewhere; by the clock of Redis its lease is there for two hours more."""
    assert CONTROLLER_LEASE.ttl_s is not None
    first, second = (ControllerLease(database, run=run, has_ended=has_ended) for run in (ELSEWHERE, own_run()))
    assert await acquired(first)
    await database.redis.expire(lease_key, 7200)
    waiting = asyncio.create_task(acquired(second))
    async with asyncio.timeout(30):
        while await database.redis.pttl(lease_key) > 1000 * CONTROLLER_LEASE.ttl_s:  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(0.01)
    assert not waiting.done()
    assert await waiting
    assert second.epoch == first.epoch + 1


async def test_who_waits_does_not_outwait_one_that_lives_when_the_clock_is_set_back(
    database: Database, lease_key: str
) -> None:
    now_s = 0.0
    first = ControllerLease(database, run=ELSEWHERE, has_ended=has_ended, clock=lambda: now_s)
    assert await acquired(first)
    second, ending = ControllerLease(database, run=own_run(), has_ended=has_ended), asyncio.Event()
    waiting = asyncio.create_task(second.acquire(until=ending))
    await database.redis.expire(lease_key, 7200)
    for _ in range(4):
        await asyncio.sleep(0.3)
        now_s += 60.0
        assert await first.may_act(), "its lease is still its own"
    ending.set()
    assert not await waiting
