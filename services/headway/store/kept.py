"""What people have asked of a stack, kept by its controller beside Redis, and written again where Redis has lost it.

A Redis that was emptied, or that came back without its data, answers as if nobody had ever asked for anything. So there
is a mark in it: where that is missing, all else is. The controller is the only one that writes these keys. It writes
them one after the other, looks for the mark before, and copies what is there afterwards, if the mark still is: what was
put into a Redis that had just lost the rest is not taken for all there ever was, and is not written over.

The mark is the number of copies that were made. A Redis with a lower one than the latest copy has lost what came last,
as by a loss of power before that was on the disk: then all is as in the copy.

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

# KEYS: mark. ARGV: the number of the copy before; patterns of keys. Returns JSON: the copy's number; key, type and
# values of each key. Nil where the mark is missing, or lower.
_COPY = """
local mark = redis.call('GET', KEYS[1])
if not mark or (tonumber(mark) or 0) < tonumber(ARGV[1]) then return false end
local found, number = {}, (tonumber(mark) or 0) + 1
for index = 2, #ARGV do
  local pattern = ARGV[index]
  for _, key in ipairs(redis.call('KEYS', pattern)) do
    local kind, values = redis.call('TYPE', key).ok, nil
    if kind == 'string' then values = {redis.call('GET', key)}
    elseif kind == 'hash' then values = redis.call('HGETALL', key)
    else values = redis.call('LRANGE', key, 0, -1) end
    found[#found + 1] = {key, kind, values}
  end
end
redis.call('SET', KEYS[1], number)
return cjson.encode({number = number, entries = found})
"""
# KEYS: mark. ARGV: what `_COPY` returned. Where the mark is missing, what was put meanwhile stays; in a list it comes
# first. Where it is lower, what is there is older than the copy.
_RESTORE = """
local copy, mark = cjson.decode(ARGV[1]), redis.call('GET', KEYS[1])
local is_older = mark and (tonumber(mark) or 0) < (copy.number or 0)
if mark and not is_older then return 0 end
for _, entry in ipairs(copy.entries or copy) do
  local key, kind, values = entry[1], entry[2], entry[3]
  if is_older then redis.call('DEL', key) end
  if kind == 'string' then redis.call('SETNX', key, values[1])
  elseif kind == 'hash' then
    for i = 1, #values, 2 do redis.call('HSETNX', key, values[i], values[i + 1]) end
  else
    for _, value in ipairs(values) do redis.call('RPUSH', key, value) end
  end
end
redis.call('SET', KEYS[1], copy.number or 0)
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
        self._copy = json.dumps({"number": 0, "entries": []})
        self._number = 0  # of the copy
        self._is_stale = True

    async def begin(self) -> None:
        """Takes what Redis has now for all there is."""
        async with self._writing:
            with redis_faults():
                await self._redis.set(self._mark, "0", nx=True)
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
            mark = await self._redis.get(self._mark)
            if mark is not None and int(mark) >= self._number:
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
        number, text = copy
        if self._path is not None:
            await asyncio.to_thread(_write, self._path, text)
        self._copy, self._number, self._is_stale = text, number, False
        return was_whole

    async def _read(self) -> tuple[int, str] | None:
        """The number of a new copy, and the copy; None where Redis has lost something since the last one."""
        arguments = (self._mark, str(self._number), *self._patterns)
        with redis_faults():
            found = await cast("Awaitable[str | None]", self._redis.eval(_COPY, 1, *arguments))
        if found is None:
            return None
        copy = json.loads(found)
        # Lua knows no empty list.
        return copy["number"], json.dumps(copy | {"entries": copy["entries"] or []})


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
        directory = os.open(path.parent, os.O_RDONLY)  # its new name is on the disk once the directory is
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        log.warning("%s is not up to date: %s", path, error.strerror)


def _any(pattern: str) -> tuple[str, ...]:
    return ("*",) * pattern.count("{}")
