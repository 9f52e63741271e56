"""Members that announce themselves."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from headway.core.codec import to_document
from headway.core.errors import UnavailableError
from headway.store.embedded import EmbeddedRedis
from headway.store.membership import RENEW_EVERY_S, Announcements, Member, Membership
from headway.store.redis import Database
from headway.store.schema import MEMBER as KEY
from headway.store.schema import MEMBERS_CHANGED

MEMBER = Member(kind="router", member_id="router-0", endpoint="a:1", metrics_endpoint="", pid=1, started_at_s=1.0)
FOREVER_S = 60.0
HOUR_MS = 3_600_000


async def heard(announcements: Announcements, database: Database) -> int:
    """How many announcements have been made that no wait has heard."""
    while not await database.redis.publish(MEMBERS_CHANGED.key(database.namespace), "the last"):  # noqa: ASYNC110 - Redis tells nobody
        await asyncio.sleep(0.01)  # nobody has subscribed yet
    num_heard = 0
    while (message := await announcements._channel.get_message(timeout=FOREVER_S)) is None or not message["data"]:
        num_heard += message is not None
    assert message["data"] == "the last"
    return num_heard


async def subscribe(announcements: Announcements, database: Database) -> None:
    """What is announced from now on is heard."""
    await announcements.wait(timeout_s=0.01)
    await heard(announcements, database)


async def listening(announcements: Announcements, database: Database) -> "asyncio.Task[None]":
    """A wait that only an announcement ends."""
    await subscribe(announcements, database)
    return asyncio.create_task(announcements.wait(timeout_s=FOREVER_S))


async def test_a_member_announces_that_it_comes_changes_and_leaves(database: Database) -> None:
    membership = Membership(database)
    async with membership.announcements() as announcements:
        for change in (
            membership.enter(MEMBER),
            membership.enter(replace(MEMBER, state="draining")),
            membership.withdraw(MEMBER),
        ):
            wait = await listening(announcements, database)
            await change
            await asyncio.wait_for(wait, FOREVER_S / 2)


async def test_a_lease_is_renewed_in_silence(database: Database) -> None:
    membership = Membership(database)
    await membership.enter(MEMBER)
    async with membership.announcements() as announcements:
        await subscribe(announcements, database)
        await membership.renew(MEMBER)
        assert await heard(announcements, database) == 0
    assert await membership.members() == [MEMBER]


async def test_a_member_of_a_later_version_is_read_as_far_as_it_is_known(database: Database) -> None:
    told = to_document(MEMBER) | {"colour": "blue"}
    await database.redis.set(KEY.key(database.namespace, MEMBER.kind, MEMBER.member_id), json.dumps(told))
    assert await Membership(database).members() == [MEMBER]


async def test_many_that_come_at_once_are_one_announcement(database: Database) -> None:
    membership = Membership(database)
    members = [replace(MEMBER, member_id=f"router-{number}", started_at_s=number) for number in range(20)]
    async with membership.announcements() as announcements:
        await subscribe(announcements, database)
        await asyncio.gather(*map(membership.enter, members))
        await announcements.wait(timeout_s=FOREVER_S)
        assert await heard(announcements, database) == 0
    assert await membership.members("router") == members[::-1], "the newest first"
    assert await membership.members("worker") == []


async def test_other_stacks_of_the_same_redis_are_not_heard(database: Database) -> None:
    other = Membership(replace(database, namespace=f"{database.namespace}-other"))
    async with Membership(database).announcements() as announcements:
        await subscribe(announcements, database)
        await other.enter(MEMBER)
        assert await heard(announcements, database) == 0


async def test_announcements_are_heard_again_when_redis_is_back(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path)
    server.start()
    database = Database.connect(server.url, namespace="test")
    membership = Membership(database)
    async with membership.announcements() as announcements:
        await subscribe(announcements, database)
        server.stop()
        with pytest.raises(UnavailableError):
            await announcements.wait(timeout_s=FOREVER_S)
        server.start()
        wait = await listening(announcements, database)
        await membership.enter(MEMBER)
        await asyncio.wait_for(wait, FOREVER_S / 2)
    await database.close()
    server.stop()


async def test_a_redis_that_has_lost_our_own_lease_has_lost_the_others_and_nobody_is_taken_for_gone(
    database: Database,
) -> None:
    now_s = 100.0
    membership = Membership(database, clock=lambda: now_s)
    await membership.enter(MEMBER)
    await membership.members()
    await database.redis.delete(f"{database.namespace}:member:router:router-0")
    with pytest.raises(UnavailableError, match="lost the leases"):
        await membership.members()
    await membership.renew(MEMBER)
    with pytest.raises(UnavailableError, match="not everyone"):
        await membership.members()
    now_s += 4.0  # everyone has renewed its lease by now
    assert await membership.members() == [MEMBER]
    await membership.withdraw(MEMBER)
    assert await membership.members() == [], "that one is gone indeed"


async def test_a_loss_is_noticed_also_where_our_own_lease_is_written_again_first(database: Database) -> None:
    membership = Membership(database, clock=lambda: 100.0)
    await membership.enter(MEMBER)
    await database.redis.delete(f"{database.namespace}:member:router:router-0")
    await membership.renew(MEMBER)
    with pytest.raises(UnavailableError, match="not everyone"):
        await membership.members()


async def test_a_look_beside_our_first_renewal_after_a_loss_takes_nobody_for_gone(database: Database) -> None:
    """Redis has our own lease again then, and not yet the others', while its answer to the renewal is on the way."""
    mate = replace(MEMBER, member_id="router-1")
    for _ in range(20):
        membership = Membership(database)
        await membership.enter(MEMBER)
        await Membership(database).enter(mate)
        assert await membership.members() == [MEMBER, mate]
        for each in (MEMBER, mate):
            await database.redis.delete(f"{database.namespace}:member:router:{each.member_id}")
        renewing = asyncio.create_task(membership.renew(MEMBER))
        await asyncio.sleep(0)  # it is sent
        with pytest.raises(UnavailableError, match="not everyone"):
            await membership.members()
        await renewing


async def test_a_lease_of_our_own_that_has_lapsed_is_no_loss(database: Database) -> None:
    now_s = 100.0
    membership = Membership(database, clock=lambda: now_s)
    await membership.enter(MEMBER)
    await database.redis.delete(f"{database.namespace}:member:router:router-0")
    now_s += 4.0
    assert await membership.members() == []


async def test_one_who_died_before_the_clock_was_set_back_is_gone_when_its_lease_would_have_lapsed(
    database: Database,
) -> None:
    """And who lives renews its own meanwhile."""
    assert KEY.ttl_s is not None
    membership, dead = Membership(database), replace(MEMBER, member_id="router-1")
    keys = [KEY.key(database.namespace, each.kind, each.member_id) for each in (MEMBER, dead)]
    for member, key in zip((MEMBER, dead), keys, strict=True):
        await membership.enter(member)
        await database.redis.pexpire(key, 2 * HOUR_MS)
    assert await Membership(database).members() == [MEMBER, dead]
    for key in keys:
        assert await database.redis.pttl(key) <= 1000 * KEY.ttl_s
    while await membership.members() != [MEMBER]:
        await membership.renew(MEMBER)
        await asyncio.sleep(RENEW_EVERY_S)


async def test_who_looks_does_not_lengthen_a_lease(database: Database) -> None:
    membership, key = Membership(database), KEY.key(database.namespace, MEMBER.kind, MEMBER.member_id)
    await membership.enter(MEMBER)
    await asyncio.sleep(0.05)
    left_ms = await database.redis.pttl(key)
    await membership.members()
    assert await database.redis.pttl(key) <= left_ms
