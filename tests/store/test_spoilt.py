"""What Redis holds was changed behind everybody's back: it is as it was again, or set aside, and nobody ends."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path

import pytest

from headway.core.api_key import ApiKeyRecord
from headway.core.codec import to_document
from headway.core.deployment import Deployment, GatewayOptions
from headway.core.errors import InvalidArgumentError, UnavailableError
from headway.core.slo import Slo
from headway.core.traffic import Arrival
from headway.router.attainment import Attainment
from headway.store.answers import AnswerStore
from headway.store.api_keys import ApiKeyStore
from headway.store.controller_lease import ControllerLease, dismiss_controllers
from headway.store.documents import Documents
from headway.store.kept import KEPT_FAMILIES, KeptData, note_write, recover
from headway.store.membership import Member, Membership
from headway.store.plan_follower import PlanFollower
from headway.store.plans import PlanStore
from headway.store.redis import Database
from headway.store.replanning import ReplanningStore
from headway.store.schema import (
    ANSWER,
    API_KEYS,
    ATTAINMENT,
    CONTROLLER_EPOCH,
    CONTROLLER_LEASE,
    DEPLOYMENT,
    KEPT,
    MEMBER,
    REPLANNING_DECISIONS,
    TRAFFIC,
    TRAFFIC_COUNTS,
    KeyFamily,
)
from headway.store.spoilt import SpoiltError, spoilt_keys
from headway.store.traffic import Entry, TrafficStore

DEPLOYED = Deployment(models=(), gateway=GatewayOptions(host="127.0.0.1", port=1, grpc_port=2))
KEY = ApiKeyRecord(key_id="key-1", hashed="sha256:1", created_at_s=1.0)

# Each makes something else of a value's bytes.
CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda value: value[: len(value) // 2],
    "another value": lambda value: value.replace(b"1", b"7"),
    "no text": lambda value: value[:-2] + b"\xff\xfe",
    "no JSON": lambda value: b"}" + value[1:],
    "an unknown field": lambda value: b'{"strange": 1}',
    "of another kind": lambda value: b"[[]]",
    "empty": lambda value: b"",
}


async def no_restoration() -> None:
    raise AssertionError("nothing was lost")


@pytest.fixture(autouse=True)
async def cleared(database: Database) -> AsyncIterator[None]:
    yield
    for key in await database.redis.keys(f"{database.namespace}:*"):
        await database.redis.delete(key)


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not (await found if isawaitable(found := condition()) else found):  # noqa: ASYNC110 - no such event
            await asyncio.sleep(0.01)


def name_in(database: Database, family: KeyFamily) -> str:
    return family.key(database.namespace, *("x1",) * family.pattern.count("{}"))


async def change(database: Database, key: str, how: Callable[[bytes], bytes], *, field: str = "x1") -> None:
    """Changes a value of a key, whatever its type."""
    redis, kind = database.redis, await database.redis.type(key)
    if kind == "string":
        await redis.set(key, how((await redis.get(key)).encode()))
    elif kind == "hash":
        await redis.hset(key, field, how((await redis.hget(key, field)).encode()))
    else:
        await redis.lset(key, 0, how((await redis.lindex(key, 0)).encode()))


async def fill(database: Database) -> None:
    """Something of each kind that is kept."""
    for family in KEPT_FAMILIES:
        key = name_in(database, family)
        if family.kind.startswith("hash"):
            await database.redis.hset(key, mapping={f"x{i}": f'{{"of": {i}}}' for i in range(3)})
        elif family.kind.startswith("list"):
            await database.redis.rpush(key, "plan-1", "plan-0")
        else:
            await database.redis.set(key, '{"of": "plan-1"}')


async def held(database: Database) -> list[object]:
    """All that is kept, in its order."""
    found: list[object] = []
    for family in KEPT_FAMILIES:
        key = name_in(database, family)
        reads = {"string": database.redis.get, "hash": database.redis.hgetall}
        kind = await database.redis.type(key)
        found.append(await reads[kind](key) if kind in reads else await database.redis.lrange(key, 0, -1))
    return found


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_next", [False, True], ids=["the controller lives", "the next controller"])
async def test_every_kind_that_is_kept_is_as_it_was_again(
    database: Database, tmp_path: Path, name: str, *, is_next: bool
) -> None:
    await fill(database)
    kept = KeptData(database, on_restored=no_restoration, path=tmp_path / "kept.json")
    await kept.begin()
    before = await held(database)
    for family in KEPT_FAMILIES:
        await change(database, name_in(database, family), CHANGES[name])
    assert await held(database) != before
    if is_next:
        await recover(database, tmp_path / "kept.json")
    else:
        async with kept.writing():
            assert await held(database) == before, "before anything else is written"
    assert await held(database) == before
    assert await spoilt_keys(database) == []


async def test_a_value_of_another_type_and_one_that_is_gone_are_as_they_were_again(database: Database) -> None:
    await fill(database)
    kept = KeptData(database, on_restored=no_restoration)
    await kept.begin()
    before = await held(database)
    first, second, *_ = (name_in(database, family) for family in KEPT_FAMILIES)
    await database.redis.delete(first, second)
    await database.redis.sadd(first, "strange")
    keeping = asyncio.create_task(kept.keep())

    async def is_restored() -> bool:
        return await database.redis.type(first) == "string" and await held(database) == before

    await until(is_restored)
    keeping.cancel()


async def test_what_was_written_since_the_copy_is_not_taken_for_spoilt(database: Database, tmp_path: Path) -> None:
    """By a controller that died before it had copied it, and by a command while no controller lives."""
    path = tmp_path / "kept.json"
    kept = KeptData(database, on_restored=no_restoration, path=path)
    await kept.begin()

    async def die_before_the_copy() -> None:
        async with kept.writing():
            await ApiKeyStore(database).put(KEY)
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await die_before_the_copy()
    await recover(database, path)
    assert await ApiKeyStore(database).all() == [KEY]
    await KeptData(database, on_restored=no_restoration, path=path).begin()
    await note_write(database)
    await Documents(database, DEPLOYMENT, Deployment).put(DEPLOYED)
    await recover(database, path)
    assert await Documents(database, DEPLOYMENT, Deployment).get() == DEPLOYED


@pytest.mark.parametrize("mark", ["x", "-3", "1e3", "9" * 30, ""])
async def test_a_spoilt_mark_costs_nothing(database: Database, mark: str) -> None:
    restored = asyncio.Event()

    async def note() -> None:
        restored.set()

    kept = KeptData(database, on_restored=note)
    await kept.begin()
    keys = ApiKeyStore(replace(database, writing=kept.writing))
    await keys.put(KEY)
    await database.redis.set(KEPT.key(database.namespace), mark)
    await keys.put(replace(KEY, key_id="key-2"))
    assert {each.key_id for each in await keys.all()} == {"key-1", "key-2"}
    assert restored.is_set()


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"number": 0}', "\udcff"])
async def test_a_copy_that_cannot_be_read_is_left_out(database: Database, tmp_path: Path, text: str) -> None:
    path = tmp_path / "kept.json"
    path.write_text(text, errors="surrogateescape")
    await ApiKeyStore(database).put(KEY)
    await recover(database, path)
    assert await ApiKeyStore(database).all() == [KEY]


async def test_a_copy_in_which_a_value_has_changed_gives_the_others(database: Database, tmp_path: Path) -> None:
    await fill(database)
    path = tmp_path / "kept.json"
    await KeptData(database, on_restored=no_restoration, path=path).begin()
    before = await held(database)
    copy = json.loads(path.read_text())
    copy["entries"][0][2] = ["spoilt"]
    path.write_text(json.dumps(copy))
    changed = name_in(database, KEPT_FAMILIES[1])
    await database.redis.set(changed, "spoilt, too")
    await recover(database, path)
    assert await held(database) == before


@pytest.mark.parametrize("name", ["cut", "no text", "no JSON", "empty"])
async def test_a_document_that_nobody_can_read_is_set_aside_and_told(database: Database, name: str) -> None:
    """Where there is no copy: profiles, searches, records of processes, and what the copy has no better."""
    documents = Documents(database, DEPLOYMENT, Deployment)
    await documents.put(DEPLOYED)
    key = DEPLOYMENT.key(database.namespace)
    await change(database, key, CHANGES[name])
    kept = KeptData(database, on_restored=no_restoration)
    await kept.begin()
    assert await documents.get() is None
    assert await spoilt_keys(database) == [key]
    keeping = asyncio.create_task(kept.keep())
    await until(lambda: bool(kept.faults))
    assert kept.faults == (f"{key} could not be read and was set aside",)
    async with kept.writing():
        pass
    assert await documents.get() is None, "it does not come back from the copy"
    await documents.put(DEPLOYED)
    assert await spoilt_keys(database) == []
    keeping.cancel()


async def test_one_of_a_later_version_stays_for_that(database: Database) -> None:
    documents = Documents(database, KeyFamily("profile:{}", "string (JSON)", None, "test", ""), Deployment)
    await documents.put(DEPLOYED, "a")
    key = f"{database.namespace}:profile:b"
    await database.redis.set(key, '{"later": 1}')
    assert await documents.all() == [DEPLOYED]
    with pytest.raises(InvalidArgumentError, match="missing"):
        await documents.get("b")
    await database.redis.set(key, json.dumps(to_document(DEPLOYED) | {"later": 1}))
    assert await documents.get("b") == DEPLOYED, "but for what this version does not know"
    assert await spoilt_keys(database) == []


async def test_of_several_documents_the_others_are_there(database: Database) -> None:
    family = KeyFamily("profile:{}", "string (JSON)", None, "test", "")
    documents = Documents(database, family, Deployment)
    for name in "abc":
        await documents.put(DEPLOYED, name)
    await change(database, family.key(database.namespace, "b"), CHANGES["cut"])
    assert await documents.all() == [DEPLOYED] * 2
    assert await documents.all() == [DEPLOYED] * 2
    assert await spoilt_keys(database) == [family.key(database.namespace, "b")]


async def test_a_key_that_cannot_be_read_opens_nothing_and_keys_are_asked_for_all_the_same(database: Database) -> None:
    keys = ApiKeyStore(database)
    await keys.put(KEY)
    await change(database, API_KEYS.key(database.namespace), CHANGES["no text"], field="key-1")
    (found,) = await keys.all()
    assert (found.key_id, found.hashed, found.revoked_at_s) == ("key-1", "", 0.0)


async def test_a_plan_that_cannot_be_read_leaves_the_last_one_and_is_told(database: Database) -> None:
    taken: list[object] = []

    async def take(plan: object) -> None:
        taken.append(plan)

    follower = PlanFollower(PlanStore(database), take=take)
    await database.redis.set(f"{database.namespace}:plan-current", "plan-1")
    await database.redis.set(f"{database.namespace}:plan:plan-1", '{"kind": "serving"')
    watching = asyncio.create_task(follower.watch())
    await until(lambda: bool(follower.fault))
    assert not watching.done()
    watching.cancel()
    assert "plan-1" in follower.fault
    assert taken == []


async def test_a_decision_that_cannot_be_read_is_left_out(database: Database) -> None:
    store = ReplanningStore(database)
    await database.redis.rpush(REPLANNING_DECISIONS.key(database.namespace), "{}", "\udcff")
    assert await store.decisions() == ()


@pytest.mark.parametrize("name", [name for name in CHANGES if name not in ("another value", "empty")])
async def test_a_lease_that_cannot_be_read_means_nothing_and_is_deleted(database: Database, name: str) -> None:
    """One that never lapses would keep everybody from looking."""
    now_s = 0.0
    membership = Membership(database, clock=lambda: now_s)
    member = Member(kind="router", member_id="router", endpoint="a:1", metrics_endpoint="a:2", pid=1, started_at_s=1.0)
    await membership.enter(member)
    key = MEMBER.key(database.namespace, "router", "router")
    await change(database, key, CHANGES[name])
    with pytest.raises(UnavailableError, match="writes it again"):
        await membership.members()
    assert await database.redis.get(key) is None
    await membership.renew(member)
    now_s = 10.0
    await membership.renew(member)
    assert await membership.members() == [member]


def lease_of(database: Database, run: str) -> ControllerLease:
    return ControllerLease(database, run=run, has_ended=lambda _: False)


@pytest.mark.parametrize("text", ["strange", "", "x 5 start", "\udcff"])
async def test_a_spoilt_lease_goes_to_the_controller_that_had_it(database: Database, text: str) -> None:
    first, second, ended = lease_of(database, "1 a"), lease_of(database, "2 b"), asyncio.Event()
    assert await first.acquire(until=ended)
    waiting = asyncio.create_task(second.acquire(until=ended))
    await until(lambda: bool(second._seen_epoch))
    await database.redis.set(CONTROLLER_LEASE.key(database.namespace), text)
    await database.redis.set(CONTROLLER_EPOCH.key(database.namespace), text)
    first._renewed_s = -1e9
    assert await first.may_act()
    assert not waiting.done()
    ended.set()
    assert not await waiting
    assert await database.redis.get(CONTROLLER_EPOCH.key(database.namespace)) == "1"


@pytest.mark.parametrize("text", ["strange", "x y", "3 x y"])
async def test_a_controller_that_finds_only_spoilt_leases_has_the_next_epoch(database: Database, text: str) -> None:
    await database.redis.set(CONTROLLER_LEASE.key(database.namespace), text, px=500)
    await database.redis.set(CONTROLLER_EPOCH.key(database.namespace), "x")
    lease = lease_of(database, "1 a")
    async with asyncio.timeout(60):
        assert await lease.acquire(until=asyncio.Event())
    assert lease.epoch >= 1
    await database.redis.set(CONTROLLER_LEASE.key(database.namespace), text)
    assert await dismiss_controllers(database) is None


async def test_counts_that_are_none_begin_anew_and_the_others_go_on(database: Database) -> None:
    key = ATTAINMENT.key(database.namespace, "m")
    await database.redis.hset(key, mapping={"met": "4", "rejected": "no", "missed": "9" * 25, "\udcff": "1"})
    attainment = Attainment(database)
    for _ in range(3):
        attainment.count_rejection("m")
    await attainment.flush()
    (total,) = attainment.totals
    assert (total.num_met, total.num_rejected, total.num_missed) == (4, 3, 0)
    assert await database.redis.hget(key, "rejected") == "3"


async def test_recorded_requests_that_cannot_be_read_are_left_out(database: Database) -> None:
    store, hour = TrafficStore(database), 600_000
    arrival = Arrival(at_s=hour * 3600.0, model="m", num_prompt_tokens=1, max_output_tokens=2, slo=Slo())
    entry = Entry(run="a", first=0, arrivals=(arrival,), output_tokens={})
    await store.add({hour: entry})
    await database.redis.rpush(TRAFFIC.key(database.namespace, str(hour)), "eJw=", "}{", "\udcff")
    await database.redis.hset(TRAFFIC_COUNTS.key(database.namespace), mapping={str(hour): "x", "y": "1"})
    await store.add({hour: replace(entry, first=1)})
    found = [each for batch in [found async for found in store.read(0, 1e12)] for each in batch]
    assert found == [arrival] * 2
    await store.trim(hour * 3600.0)
    assert await database.redis.hget(TRAFFIC_COUNTS.key(database.namespace), str(hour)) == "1"


async def test_a_stream_that_cannot_be_read_is_an_error_of_who_asks_for_it(database: Database) -> None:
    await database.redis.hset(ANSWER.key(database.namespace, "a"), mapping={"owner": "x", "record": "{"})
    with pytest.raises(SpoiltError, match=r"answer:a what cannot be read"):
        await AnswerStore(database).find("a")
