"""What is kept of suspects in Redis, where its clock is set back."""

import asyncio

from headway.core.suspicion import Suspicion
from headway.store.quarantine import QuarantineStore
from headway.store.redis import Database
from headway.store.schema import QUARANTINE, SUSPECT_TURN

HOURS_S = 7200


async def test_a_turn_passes_on_within_seconds_though_its_owner_died_before_the_clock_was_set_back(
    database: Database,
) -> None:
    store, key = QuarantineStore(database), SUSPECT_TURN.key(database.namespace, "m")
    assert SUSPECT_TURN.ttl_s is not None
    assert await store.take_turn("m", owner="dead")
    await database.redis.expire(key, HOURS_S)
    assert not await store.take_turn("m", owner="b")
    assert await database.redis.pttl(key) <= 1000 * SUSPECT_TURN.ttl_s
    async with asyncio.timeout(60):
        while not await store.take_turn("m", owner="b"):  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(0.05)
    assert not await store.take_turn("m", owner="c")


async def test_a_turn_stays_with_an_owner_that_lives_when_the_clock_is_set_back(database: Database) -> None:
    store, key = QuarantineStore(database), SUSPECT_TURN.key(database.namespace, "m")
    assert SUSPECT_TURN.ttl_s is not None
    assert await store.take_turn("m", owner="a")
    await database.redis.expire(key, HOURS_S)
    assert not await store.take_turn("m", owner="b")
    assert await store.take_turn("m", owner="a")
    assert not await store.take_turn("m", owner="b")
    assert await database.redis.pttl(key) <= 1000 * SUSPECT_TURN.ttl_s


async def test_a_request_is_known_for_an_hour_from_when_the_clock_was_set_back(database: Database) -> None:
    store, key = QuarantineStore(database), QUARANTINE.key(database.namespace)
    assert QUARANTINE.ttl_s is not None
    await store.put("a", Suspicion.SEALED)
    await database.redis.zincrby(key, HOURS_S, "a")
    await store.put("b", Suspicion.SEALED)
    known = await store.read(Suspicion.SEALED)
    assert known.keys() == {"a", "b"}
    assert max(known.values()) <= QUARANTINE.ttl_s
    now_s, _ = await database.redis.time()
    kept = await database.redis.zrange(key, 0, -1, withscores=True)
    assert all(until_s <= now_s + QUARANTINE.ttl_s for _, until_s in kept), "also by Redis's own clock"
