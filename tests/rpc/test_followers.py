"""Following members as they come, restart and go."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headway.core.errors import UnavailableError
from headway.rpc.followers import Followers
from headway.rpc.peers import Peers
from headway.store.embedded import EmbeddedRedis
from headway.store.membership import Member, Membership
from headway.store.redis import Database


def make_member(member_id: str, *, endpoint: str = "host:1") -> Member:
    return Member(kind="worker", member_id=member_id, endpoint=endpoint, metrics_endpoint="", pid=1, started_at_s=0.0)


class Follower:
    """Notes what it is told; its streams live until `cut`."""

    def __init__(self) -> None:
        self.followed: list[str] = []
        self.lost: list[str] = []
        self.cut = asyncio.Event()
        self.crash: Exception | None = None

    async def follow(self, member: Member) -> None:
        self.followed.append(f"{member.member_id}@{member.endpoint}")
        if self.crash:
            raise self.crash
        await self.cut.wait()
        self.cut.clear()
        raise UnavailableError("the stream broke")

    def lose(self, member: Member) -> None:
        self.lost.append(f"{member.member_id}@{member.endpoint}")


@asynccontextmanager
async def following(database: Database) -> AsyncIterator[tuple[Follower, "asyncio.Task[None]"]]:
    follower = Follower()
    async with Peers(Membership(database)).watching() as peers:
        followers = Followers(
            peers, "worker", follow=follower.follow, lose=follower.lose, accepts=lambda member: member.is_leader
        )
        task = asyncio.create_task(followers.run())
        await asyncio.sleep(0.01)
        yield follower, task
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ValueError):
            await task


async def test_members_are_followed_when_they_come_and_lost_when_stream_and_lease_are_gone(database: Database) -> None:
    membership, member = Membership(database), make_member("worker-0")
    async with following(database) as (follower, _):
        await membership.enter(member)
        await asyncio.sleep(0.6)
        assert follower.followed == ["worker-0@host:1"]
        await membership.withdraw(member)
        await asyncio.sleep(0.6)
        assert follower.lost == []
        follower.cut.set()
        await asyncio.sleep(0.6)
        assert follower.lost == ["worker-0@host:1"]


async def test_a_broken_stream_is_followed_again_while_the_lease_holds(database: Database) -> None:
    await Membership(database).enter(make_member("worker-0"))
    async with following(database) as (follower, _):
        follower.cut.set()
        await asyncio.sleep(0.3)
        assert follower.followed == ["worker-0@host:1"] * 2
        assert follower.lost == []


async def test_a_member_at_a_new_endpoint_replaces_the_old_one(database: Database) -> None:
    membership = Membership(database)
    await membership.enter(make_member("worker-0"))
    async with following(database) as (follower, _):
        await membership.enter(make_member("worker-0", endpoint="host:2"))
        await asyncio.sleep(0.6)
        assert follower.lost == ["worker-0@host:1"]
        assert follower.followed == ["worker-0@host:1", "worker-0@host:2"]


async def test_a_bug_in_following_is_not_hidden(database: Database) -> None:
    await Membership(database).enter(make_member("worker-0"))
    async with following(database) as (follower, task):
        follower.crash = ValueError("bug")
        follower.cut.set()
        with pytest.raises(ValueError, match="bug"):
            await asyncio.wait_for(task, 2.0)


async def test_streams_outlive_a_restart_of_redis_in_which_all_leases_lapsed(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path)
    server.start()
    database = Database.connect(server.url, namespace="test")
    membership, member = Membership(database), make_member("worker-0")
    await membership.enter(member)
    try:
        async with following(database) as (follower, _):
            server.stop()
            await asyncio.sleep(0.6)
            server.start()
            await membership.withdraw(member)  # as if the outage had been longer than the lease
            await asyncio.sleep(0.8)
            await membership.enter(member)
            await asyncio.sleep(0.6)
            assert follower.followed == ["worker-0@host:1"]
            assert follower.lost == []
    finally:
        server.stop()
        await database.close()


async def test_a_member_that_is_accepted_no_more_is_lost_at_once(database: Database) -> None:
    membership, member = Membership(database), make_member("worker-1")
    async with following(database) as (follower, _):
        await membership.enter(member)
        await asyncio.sleep(0.6)
        assert follower.followed == ["worker-1@host:1"]
        await membership.enter(replace(member, rank=1))
        await asyncio.sleep(0.6)
        assert follower.lost == ["worker-1@host:1"]
        await asyncio.sleep(0.6)
        assert follower.followed == ["worker-1@host:1"]
