"""Tasks end, also those that miss a cancellation, and those that clean up are let."""

import asyncio

import pytest

from headway.rpc.tasks import end_tasks, finished, tell_failure
from headway.store.redis import Database


async def test_a_task_that_is_always_in_redis_ends(database: Database) -> None:
    async def ask_for_ever() -> None:
        while True:
            await database.redis.get("key")

    for _ in range(5):
        task = asyncio.create_task(ask_for_ever())
        await asyncio.sleep(0.005)
        await asyncio.wait_for(end_tasks([task]), 5.0)
        assert task.cancelled()


async def test_tasks_that_failed_or_ended_are_no_obstacle() -> None:
    async def fail() -> None:
        raise ValueError

    ended, failed = asyncio.create_task(asyncio.sleep(0)), asyncio.create_task(fail())
    await asyncio.sleep(0.01)
    await end_tasks([ended, failed])
    assert isinstance(failed.exception(), ValueError)


async def test_cleaning_up_is_not_cut_short_by_further_cancellations() -> None:
    is_clean = asyncio.Event()

    async def clean_up() -> str:
        await asyncio.sleep(0.2)
        is_clean.set()
        return "clean"

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            assert await finished(asyncio.create_task(clean_up())) == "clean"

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await end_tasks([task])  # which cancels again and again meanwhile
    assert is_clean.is_set()
    assert task.cancelled()


async def test_who_waits_for_a_task_to_finish_gets_its_result_or_its_error() -> None:
    async def fail() -> None:
        raise ValueError("It broke.")

    assert await finished(asyncio.create_task(asyncio.sleep(0, "result"))) == "result"
    with pytest.raises(ValueError, match="broke"):
        await finished(asyncio.create_task(fail()))


async def test_what_a_task_fails_with_is_told_and_its_end_is_not() -> None:
    async def fail() -> None:
        raise ValueError("It broke.")

    told: list[BaseException] = []
    tasks = [asyncio.create_task(work) for work in (fail(), asyncio.sleep(0), asyncio.sleep(60))]
    for task in tasks:
        tell_failure(task, told.append)
    await asyncio.sleep(0.01)
    await end_tasks(tasks)
    await asyncio.sleep(0)
    assert [str(error) for error in told] == ["It broke."]
