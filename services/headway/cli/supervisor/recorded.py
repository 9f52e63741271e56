"""The processes that a controller launched, as it recorded them in Redis."""

from contextlib import suppress
from typing import Any

from headway.client.stack import ProcessId
from headway.core.errors import HeadwayError, UnavailableError
from headway.store.controller_lease import dismiss_controllers
from headway.store.redis import Database, redis_faults
from headway.store.schema import PROCESS
from headway.store.spoilt import SpoiltError, decode


async def recorded_processes(redis_url: str, *, namespace: str) -> list[ProcessId]:
    """Ids of every recorded process, alive or not; none where Redis does not answer. A record that cannot be read is
    left out: what it tells of is found by its log."""
    database = Database.connect(redis_url, namespace=namespace)
    try:
        with redis_faults():
            keys = [key async for key in database.redis.scan_iter(match=PROCESS.key(namespace, "*"))]
            texts = await database.redis.mget(keys) if keys else []
    except UnavailableError:
        return []
    finally:
        await database.close()
    found = []
    for key, text in zip(keys, texts, strict=True):
        with suppress(SpoiltError):
            found += [] if text is None else [decode(_process_id, text, key=key)]
    return found


def _process_id(record: Any) -> ProcessId:
    return ProcessId(pid=int(record["pid"]), start=str(record["start"]))


async def dismissed_controller(redis_url: str, *, namespace: str) -> list[ProcessId]:
    """Tells every controller of the stack that it ends, and returns the one at work, whoever started it: it is to be
    ended before what it has launched. None where Redis does not answer."""
    database = Database.connect(redis_url, namespace=namespace)
    try:
        found = await dismiss_controllers(database)
    except HeadwayError:
        return []
    finally:
        await database.close()
    return [] if found is None else [ProcessId(pid=found[0], start=found[1])]
