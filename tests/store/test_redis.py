"""Commands that are cancelled, and connections that say nothing any more."""

import asyncio

import pytest

from headway.core.errors import UnavailableError
from headway.store.membership import Member, Membership
from headway.store.redis import _OPTIONS, Database, redis_faults

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


class Wire:
    """Passes bytes on between a client and Redis, or none at all, and ends nothing: connections are half open then."""

    def __init__(self, socket_path: str) -> None:
        self.is_silent = False
        self.num_connections = 0
        self._socket_path = socket_path

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        there, back = await asyncio.open_unix_connection(self._socket_path)
        await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            if not self.is_silent:
                sink.write(data)
        sink.close()


async def test_a_connection_that_is_half_open_is_given_up_and_made_anew(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_OPTIONS, "socket_timeout", 0.2)
    wire = Wire(redis_url.removeprefix("unix://"))
    async with await asyncio.start_server(wire.connect, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        database = Database.connect(f"redis://127.0.0.1:{port}", namespace=namespace)
        with redis_faults():
            await database.redis.ping()
        wire.is_silent = True
        with pytest.raises(UnavailableError, match="cannot be reached"), redis_faults():
            await database.redis.ping()
        wire.is_silent = False
        with redis_faults():
            await database.redis.ping()
        assert wire.num_connections > 1
        await database.close()
