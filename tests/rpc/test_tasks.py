"""Tasks end, also those that miss a cancellation."""

import asyncio

from headway.rpc.tasks import end_tasks
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
