"""Commands that are cancelled."""

import asyncio

import pytest

from headway.store.membership import Member, Membership
from headway.store.redis import Database

MEMBER = Member(kind="router", member_id="router-0", endpoint="a:1", metrics_endpoint="", pid=1, started_at_s=1.0)


@pytest.mark.parametrize("num_turns", range(12))
async def test_a_cancelled_command_never_goes_on(database: Database, num_turns: int) -> None:
    """Whenever the cancellation comes, and with a new connection or an old one."""
    membership = Membership(database)
    await membership.renew(MEMBER)
    for _ in range(2):
        task = asyncio.create_task(membership.renew(MEMBER))
        for _ in range(num_turns):
            await asyncio.sleep(0)
        if not task.done():
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await database.redis.connection_pool.disconnect()
    await membership.renew(MEMBER)


async def test_cleaning_up_in_a_cancelled_task_still_works(database: Database) -> None:
    membership = Membership(database)
    await membership.renew(MEMBER)

    async def withdraw_at_the_end() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await membership.withdraw(MEMBER)

    task = asyncio.create_task(withdraw_at_the_end())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await membership.members() == []
