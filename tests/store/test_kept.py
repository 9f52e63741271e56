"""What was acknowledged outlives a Redis that loses its data, whatever is put meanwhile."""

import asyncio
import random
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from headway.core.api_key import ApiKeyRecord
from headway.core.deployment import Deployment, GatewayOptions
from headway.core.errors import UnavailableError
from headway.store.api_keys import ApiKeyStore
from headway.store.documents import Documents
from headway.store.kept import KeptData, recover
from headway.store.redis import Database
from headway.store.schema import DEPLOYMENT, PLAN_HISTORY

DEPLOYED = Deployment(models=(), gateway=GatewayOptions(host="127.0.0.1", port=1, grpc_port=2))


def key(number: int) -> ApiKeyRecord:
    return ApiKeyRecord(key_id=f"key-{number}", hashed=f"sha256:{number}", created_at_s=float(number))


async def empty(database: Database) -> None:
    """All at once, as a Redis that comes back without its data."""
    script = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end"
    await database.redis.eval(script, 0, f"{database.namespace}:*")


_COPY_ALL = """
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. ':*')) do
  redis.call('RESTORE', ARGV[2] .. string.sub(key, #ARGV[1] + 1), 0, redis.call('DUMP', key), 'REPLACE')
end
"""


async def remember(database: Database) -> None:
    """All that is there now, as it is on the disk."""
    await database.redis.eval(_COPY_ALL, 0, database.namespace, f"disk-of-{database.namespace}")


async def return_to_it(database: Database) -> None:
    """What was written since was not on the disk."""
    await empty(database)
    await database.redis.eval(_COPY_ALL, 0, f"disk-of-{database.namespace}", database.namespace)


class Restorations:
    def __init__(self) -> None:
        self.num = 0

    async def __call__(self) -> None:
        self.num += 1


@pytest.fixture
def restorations() -> Restorations:
    return Restorations()


@pytest.fixture
async def kept(database: Database, restorations: Restorations) -> AsyncIterator[KeptData]:
    kept = KeptData(database, on_restored=restorations)
    await kept.begin()
    yield kept
    await empty(database)


async def test_a_key_that_is_put_into_an_emptied_redis_stays_and_so_do_those_before_it(
    database: Database, kept: KeptData, restorations: Restorations
) -> None:
    keys = ApiKeyStore(replace(database, writing=kept.writing))
    await keys.put(key(1))
    await empty(database)
    await keys.put(key(2))
    assert await keys.all() == [key(1), key(2)]
    await empty(database)
    async with asyncio.timeout(60):
        keeping = asyncio.create_task(kept.keep())
        while await keys.all() != [key(1), key(2)]:  # noqa: ASYNC110 - Redis has no such event
            await asyncio.sleep(0.01)
    keeping.cancel()
    assert restorations.num == 2


async def test_what_is_put_between_the_loss_and_its_discovery_by_a_write_under_way_is_not_written_over(
    database: Database, kept: KeptData
) -> None:
    """The loss comes after the look before the write: the new key is all there is when the copy is made."""
    keys = ApiKeyStore(replace(database, writing=kept.writing))
    await keys.put(key(1))

    async def put_after_a_loss() -> None:
        async with kept.writing():
            await empty(database)
            await ApiKeyStore(database).put(key(2))

    with pytest.raises(UnavailableError, match="lost its data while"):
        await put_after_a_loss()
    assert await keys.all() == [key(1), key(2)]


async def test_documents_and_lists_come_back_in_their_order(database: Database, kept: KeptData) -> None:
    keeping = replace(database, writing=kept.writing)
    history = PLAN_HISTORY.key(database.namespace)
    async with kept.writing():
        await database.redis.rpush(history, "plan-2", "plan-1")
    await Documents(keeping, DEPLOYMENT, Deployment).put(DEPLOYED)

    async def push_after_a_loss() -> None:
        async with kept.writing():
            await empty(database)
            await database.redis.lpush(history, "plan-3")

    with pytest.raises(UnavailableError):
        await push_after_a_loss()
    assert await database.redis.lrange(history, 0, -1) == ["plan-3", "plan-2", "plan-1"]
    assert await Documents(database, DEPLOYMENT, Deployment).get() == DEPLOYED


async def test_every_key_that_was_acknowledged_is_there_however_often_redis_loses_all(
    database: Database, kept: KeptData
) -> None:
    chance = random.Random(30)
    keys = ApiKeyStore(replace(database, writing=kept.writing))
    keeping = asyncio.create_task(kept.keep())

    async def lose() -> None:
        for _ in range(20):
            await asyncio.sleep(chance.uniform(0, 0.02))
            await empty(database)

    async def put(numbers: range) -> None:
        for number in numbers:
            while not await is_acknowledged(number):
                pass
            await asyncio.sleep(chance.uniform(0, 0.01))

    async def is_acknowledged(number: int) -> bool:
        try:
            await keys.put(key(number))
        except UnavailableError:
            return False
        return True

    await asyncio.gather(lose(), *(put(range(first, first + 25)) for first in (0, 100, 200, 300)))
    async with kept.writing():
        pass
    keeping.cancel()
    numbers = {int(record.hashed.partition(":")[2]) for record in await keys.all()}
    assert numbers == {first + i for first in (0, 100, 200, 300) for i in range(25)}


async def test_what_was_there_before_the_controller_is_kept_too(database: Database, restorations: Restorations) -> None:
    await ApiKeyStore(database).put(key(1))
    kept = KeptData(database, on_restored=restorations)
    await kept.begin()
    await empty(database)
    async with kept.writing():
        pass
    assert await ApiKeyStore(database).all() == [key(1)]
    await empty(database)


async def test_the_next_controller_has_the_copy_from_a_file(
    database: Database, restorations: Restorations, tmp_path: Path
) -> None:
    path = tmp_path / "kept.json"
    await recover(database, path)  # there was none before
    kept = KeptData(database, on_restored=restorations, path=path)
    await kept.begin()
    await ApiKeyStore(replace(database, writing=kept.writing)).put(key(1))
    keys = ApiKeyStore(database)
    await recover(database, path)
    assert await keys.all() == [key(1)], "where nothing is lost nothing is done"
    await empty(database)
    await keys.put(key(2))
    await recover(database, path)
    assert await keys.all() == [key(1), key(2)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await empty(database)


async def test_what_redis_had_not_yet_on_the_disk_is_in_the_file(
    database: Database, restorations: Restorations, tmp_path: Path
) -> None:
    """A loss of power: Redis comes back as it was a moment ago, and the controller is another one."""
    path = tmp_path / "kept.json"
    kept = KeptData(database, on_restored=restorations, path=path)
    await kept.begin()
    keys = ApiKeyStore(replace(database, writing=kept.writing))
    await keys.put(key(1))
    await remember(database)
    await keys.put(key(2))
    await keys.put(replace(key(1), revoked_at_s=5.0))
    acknowledged = await keys.all()
    await return_to_it(database)
    assert await keys.all() == [key(1)]
    await recover(database, path)
    assert await ApiKeyStore(database).all() == acknowledged
    await recover(database, path)
    assert await ApiKeyStore(database).all() == acknowledged
    await empty(database)


async def test_a_redis_that_has_lost_what_it_had_last_gets_it_from_the_controller(
    database: Database, kept: KeptData, restorations: Restorations
) -> None:
    """A replica that was behind takes the place of a lost Redis."""
    keys = ApiKeyStore(replace(database, writing=kept.writing))
    await keys.put(key(1))
    await remember(database)
    await keys.put(key(2))
    await return_to_it(database)
    await keys.put(key(3))
    assert {record.key_id for record in await keys.all()} == {"key-1", "key-2", "key-3"}
    assert restorations.num == 1
    await remember(database)
    async with kept.writing():
        await return_to_it(database)
    assert restorations.num == 1, "nothing was lost"
    await keys.put(key(4))
    with pytest.raises(UnavailableError, match="has lost its data while"):
        async with kept.writing():
            await return_to_it(database)
    assert {record.key_id for record in await keys.all()} == {"key-1", "key-2", "key-3", "key-4"}
