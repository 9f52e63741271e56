"""What people have asked of a stack, kept by its controller beside Redis, and written again where Redis has lost it.

A Redis that was emptied, or that came back without its data, answers as if nobody had ever asked for anything. So there
is a mark in it: where that is missing, all else is. The controller is the only one that writes these keys. It writes
them one after the other, looks for the mark before, and copies what is there afterwards, if the mark still is: what was
put into a Redis that had just lost the rest is not taken for all there ever was, and is not written over.

Where the controller dies as well, the next one has the copy from a file.
"""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from headway.core.errors import HeadwayError, UnavailableError
from headway.store.redis import Database, redis_faults
from headway.store.schema import (
    API_KEYS,
    DEPLOYMENT,
    KEPT,
    PLACEMENT,
    PLAN,
    PLAN_CURRENT,
    PLAN_HISTORY,
    REPLANNING,
    REPLANNING_DECISIONS,
)

log = logging.getLogger(__name__)

KEPT_FAMILIES = (
    *(DEPLOYMENT, PLAN, PLAN_CURRENT, PLAN_HISTORY, PLACEMENT),
    *(REPLANNING, REPLANNING_DECISIONS, API_KEYS),
)

_LOOK_EVERY_S = 0.5

# KEYS: mark. ARGV: patterns of keys. Returns JSON: key, type and values of each; nil where the mark is missing.
_COPY = """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local found = {}
for _, pattern in ipairs(ARGV) do
  for _, key in ipairs(redis.call('KEYS', pattern)) do
    local kind, values = redis.call('TYPE', key).ok, nil
    if kind == 'string' then values = {redis.call('GET', key)}
    elseif kind == 'hash' then values = redis.call('HGETALL', key)
    else values = redis.call('LRANGE', key, 0, -1) end
    found[#found + 1] = {key, kind, values}
  end
end
return cjson.encode(found)
"""
# KEYS: mark. ARGV: what `_COPY` returned. What was put meanwhile stays; in a list it comes first.
_RESTORE = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
for _, entry in ipairs(cjson.decode(ARGV[1])) do
  local key, kind, values = entry[1], entry[2], entry[3]
  if kind == 'string' then redis.call('SETNX', key, values[1])
  elseif kind == 'hash' then
    for i = 1, #values, 2 do redis.call('HSETNX', key, values[i], values[i + 1]) end
  else
    for _, value in ipairs(values) do redis.call('RPUSH', key, value) end
  end
end
redis.call('SET', KEYS[1], 'whole')
return 1
"""


class KeptData:
    """The copy. Stores over `Database.writing` of this object's keep it up to date.

    Args:
        on_restored: writes again what the copy does not hold, each time that Redis had lost its data.
        path: the file that has the copy too, for `recover`; None for none.
    """

    def __init__(
        self, database: Database, *, on_restored: Callable[[], Awaitable[None]], path: Path | None = None
    ) -> None:
        self._redis = database.redis
        self._mark = KEPT.key(database.namespace)
        self._patterns = [family.key(database.namespace, *_any(family.pattern)) for family in KEPT_FAMILIES]
        self._on_restored = on_restored
        self._path = path
        self._writing = asyncio.Lock()
        self._copy = "[]"
        self._is_stale = True

    async def begin(self) -> None:
        """Takes what Redis has now for all there is."""
        async with self._writing:
            with redis_faults():
                await self._redis.set(self._mark, "whole")
            await self._take_copy()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Surrounds a write.

        Raises:
            UnavailableError: Redis is away before it, or before its copy is made, or has lost its data in between:
                whether it has lost what was just written is not known.
        """
        async with self._writing:
            await self._restore()
            self._is_stale = True
            yield
            if not await self._take_copy():
                raise UnavailableError("Redis has lost its data while this was written.", hint="Try again.")

    async def keep(self) -> None:
        """Writes again what was lost, for as long as the process lives."""
        while True:
            try:
                async with self._writing:
                    await self._restore()
                    if self._is_stale:
                        await self._take_copy()
            except HeadwayError as error:
                log.debug("whether Redis has lost its data is not known: %s", error)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _restore(self) -> None:
        with redis_faults():
            if await self._redis.exists(self._mark):
                return
            restored = await cast("Awaitable[int]", self._redis.eval(_RESTORE, 1, self._mark, self._copy))
        if restored:
            log.error("Redis had lost its data; plans, placements and API keys are written again")
            await self._on_restored()

    async def _take_copy(self) -> bool:
        """Whether Redis had lost nothing; else that is written again first."""
        was_whole = True
        while (copy := await self._read()) is None:
            was_whole = False
            await self._restore()
        if self._path is not None:
            await asyncio.to_thread(_write, self._path, copy)
        self._copy, self._is_stale = copy, False
        return was_whole

    async def _read(self) -> str | None:
        with redis_faults():
            found = await cast("Awaitable[str | None]", self._redis.eval(_COPY, 1, self._mark, *self._patterns))
        # Lua knows no empty list.
        return None if found is None else json.dumps(json.loads(found) or [])


async def recover(database: Database, path: Path) -> None:
    """Writes again what Redis has lost since the last controller wrote its copy to that file, if it has; to be called
    before anything is read."""
    try:
        copy = await asyncio.to_thread(path.read_text)
    except FileNotFoundError:
        return
    with redis_faults():
        mark = KEPT.key(database.namespace)
        restored = await cast("Awaitable[int]", database.redis.eval(_RESTORE, 1, mark, copy))
    if restored:
        log.error("Redis had lost its data and the controller its life; what is in %s is written again", path)


def _write(path: Path, copy: str) -> None:
    """Replaces the file in one step, for its owner alone. A full disk leaves the last copy."""
    staging = path.with_name(f".{path.name}")
    try:
        staging.unlink(missing_ok=True)
        with os.fdopen(os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(copy)
            file.flush()
            os.fsync(file.fileno())
        staging.replace(path)
    except OSError as error:
        log.warning("%s is not up to date: %s", path, error.strerror)


def _any(pattern: str) -> tuple[str, ...]:
    return ("*",) * pattern.count("{}")
