"""Following members as they come, restart and go."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from headway.core.errors import UnavailableError
from headway.rpc import followers as module
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


@dataclass(frozen=True, slots=True)
class Following:
    """Followers that run, and what they have seen by now."""

    follower: Follower
    followers: Followers
    peers: Peers
    task: "asyncio.Task[None]"

    async def until_missing(self, member_id: str) -> None:
        """Until the followers have noticed that its lease is gone."""
        await eventually(lambda: self.followers._following[member_id].missing_since_s is not None)

    async def until_found(self, member_id: str) -> None:
        await eventually(lambda: self.followers._following[member_id].missing_since_s is None)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what changes it is the code under test
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def lasting_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine takes none for lost whose stream lives."""
    monkeypatch.setattr(module, "_LEASE_GRACE_S", math.inf)


@asynccontextmanager
async def following(database: Database) -> AsyncIterator[Following]:
    follower = Follower()
    async with Peers(Membership(database)).watching() as peers:
        followers = Followers(
            peers, "worker", follow=follower.follow, lose=follower.lose, accepts=lambda member: member.is_leader
        )
        task = asyncio.create_task(followers.run())
        yield Following(follower, followers, peers, task)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ValueError):
            await task


async def test_members_are_followed_when_they_come_and_lost_when_stream_and_lease_are_gone(database: Database) -> None:
    membership, member = Membership(database), make_member("worker-0")
    async with following(database) as running:
        follower = running.follower
        await membership.enter(member)
        await eventually(lambda: follower.followed == ["worker-0@host:1"])
        await membership.withdraw(member)
        await running.until_missing("worker-0")
        assert follower.lost == []
        follower.cut.set()
        await eventually(lambda: follower.lost == ["worker-0@host:1"])


async def test_one_whose_lease_has_lapsed_is_lost_after_a_while_though_its_stream_lives(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership, member = Membership(database), make_member("worker-0")
    async with following(database) as running:
        await membership.enter(member)
        await eventually(lambda: running.follower.followed == ["worker-0@host:1"])
        await membership.withdraw(member)
        await running.until_missing("worker-0")
        monkeypatch.setattr(module, "_LEASE_GRACE_S", 0.0)
        await eventually(lambda: running.follower.lost == ["worker-0@host:1"])


async def test_a_broken_stream_is_followed_again_while_the_lease_holds(database: Database) -> None:
    await Membership(database).enter(make_member("worker-0"))
    async with following(database) as running:
        running.follower.cut.set()
        await eventually(lambda: running.follower.followed == ["worker-0@host:1"] * 2)
        assert running.follower.lost == []


async def test_a_member_at_a_new_endpoint_replaces_the_old_one(database: Database) -> None:
    membership = Membership(database)
    await membership.enter(make_member("worker-0"))
    async with following(database) as running:
        await eventually(lambda: running.follower.followed == ["worker-0@host:1"])
        await membership.enter(make_member("worker-0", endpoint="host:2"))
        await eventually(lambda: running.follower.followed == ["worker-0@host:1", "worker-0@host:2"])
        assert running.follower.lost == ["worker-0@host:1"]


async def test_another_run_at_the_same_endpoint_replaces_the_old_one(database: Database) -> None:
    """A container that is started again keeps its pod's address, its port and pid 1."""
    membership, member = Membership(database), make_member("worker-0")
    await membership.enter(member)
    async with following(database) as running:
        await eventually(lambda: running.follower.followed == ["worker-0@host:1"])
        await membership.enter(replace(member, started_at_s=1.0))
        await eventually(lambda: running.follower.followed == ["worker-0@host:1"] * 2)
        assert running.follower.lost == ["worker-0@host:1"]


async def test_a_bug_in_following_is_not_hidden(database: Database) -> None:
    await Membership(database).enter(make_member("worker-0"))
    async with following(database) as running:
        running.follower.crash = ValueError("bug")
        running.follower.cut.set()
        with pytest.raises(ValueError, match="bug"):
            await asyncio.wait_for(running.task, 20)


async def test_streams_outlive_a_restart_of_redis_in_which_all_leases_lapsed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = EmbeddedRedis(tmp_path)
    server.start()
    database = Database.connect(server.url, namespace="test")
    membership, member = Membership(database), make_member("worker-0")
    await membership.enter(member)
    try:
        async with following(database) as running:
            await eventually(lambda: running.follower.followed == ["worker-0@host:1"])
            server.stop()
            await eventually(lambda: "keeping the last known members" in caplog.text)
            server.start()
            await membership.withdraw(member)  # as if the outage had been longer than the lease
            await running.until_missing("worker-0")
            await membership.enter(member)
            await running.until_found("worker-0")
            assert running.follower.followed == ["worker-0@host:1"]
            assert running.follower.lost == []
    finally:
        server.stop()
        await database.close()


async def test_a_member_that_is_accepted_no_more_is_lost_at_once(database: Database) -> None:
    membership, member = Membership(database), make_member("worker-1")
    async with following(database) as running:
        follower = running.follower
        await membership.enter(member)
        await eventually(lambda: follower.followed == ["worker-1@host:1"])
        await membership.enter(replace(member, rank=1))
        await eventually(lambda: follower.lost == ["worker-1@host:1"])
        await membership.enter(make_member("worker-2"))
        await eventually(lambda: len(follower.followed) == 2)
        assert follower.followed == ["worker-1@host:1", "worker-2@host:1"]
