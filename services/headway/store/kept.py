"""What people have asked of a stack, kept by its controller beside Redis, and written again where Redis has lost it.

A Redis that was emptied, or that came back without its data, answers as if nobody had ever asked for anything. So there
is a mark in it: where that is missing, all else is. The controller is the only one that writes these keys while it
lives. It writes them one after the other, looks for the mark before, and copies what is there afterwards, if the mark
still is: what was put into a Redis that had just lost the rest is not taken for all there ever was, and is not written
over.

The mark is the number of the latest copy, and one more from before a write until its copy is made:

- *lower* than the copy: Redis has lost what came last, as by a loss of power before that was on the disk. Then all is
  as in the copy.
- *equal*: nobody has written since. A value that is another one than in the copy, by their digests, has been spoilt,
  and is as in the copy.
- *higher*: what is there is newer than the copy.

Where the controller dies as well, the next one has the copy from a file.
"""

import asyncio
import hashlib
import itertools
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

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
    SPOILT,
)
from headway.store.spoilt import spoilt_keys

log = logging.getLogger(__name__)

KEPT_FAMILIES = (
    *(DEPLOYMENT, PLAN, PLAN_CURRENT, PLAN_HISTORY, PLACEMENT),
    *(REPLANNING, REPLANNING_DECISIONS, API_KEYS),
)

KEPT_FILE = Path("redis") / "kept.json"
"""Where the copy is, in the state directory."""

_LOOK_EVERY_S = 0.5
_COMPARE_EVERY = 4  # looks: it reads every value

# A mark that is no number, as a spoilt one, is lower than any. Fields of a hash have no order of their own.
_READ = r"""
local function number(mark)
  return mark and #mark < 15 and string.match(mark, '^%d+$') and tonumber(mark) or -1
end
local function read(key)
  local kind, values = redis.call('TYPE', key).ok, {}
  if kind == 'string' then values = {redis.call('GET', key)}
  elseif kind == 'list' then values = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'hash' then
    local fields = redis.call('HKEYS', key)
    table.sort(fields)
    for _, field in ipairs(fields) do
      values[#values + 1] = field
      values[#values + 1] = redis.call('HGET', key, field)
    end
  end
  return kind, values, redis.sha1hex(kind .. '\n' .. table.concat(values, '\n'))
end
"""
# KEYS: mark. ARGV: the copy's number, whether a write follows, keys of the copy and their digests.
_LOOK = (
    _READ
    + """
local mark, copied = number(redis.call('GET', KEYS[1])), tonumber(ARGV[1])
if mark < copied then return 'lost' end
if mark == copied then
  for index = 3, #ARGV, 2 do
    local _, _, digest = read(ARGV[index])
    if digest ~= ARGV[index + 1] then return 'spoilt' end
  end
end
if ARGV[2] == '1' then redis.call('INCR', KEYS[1]) end
return mark == copied and 'same' or 'newer'
"""
)
# KEYS: mark. ARGV: the number of the copy before; patterns of keys. Returns JSON: the copy's number; key, type, values
# and digest of each key. Nil where the mark is missing, or lower.
_COPY = (
    _READ
    + """
local mark = number(redis.call('GET', KEYS[1]))
if mark < tonumber(ARGV[1]) then return false end
local found = {}
for index = 2, #ARGV do
  local pattern = ARGV[index]
  for _, key in ipairs(redis.call('KEYS', pattern)) do
    local kind, values, digest = read(key)
    found[#found + 1] = {key, kind, values, digest}
  end
end
redis.call('SET', KEYS[1], mark + 1)
return cjson.encode({number = mark + 1, entries = found})
"""
)
# KEYS: mark; values that were set aside. ARGV: what `_COPY` returned. Returns what was found, and the keys that were
# spoilt. Where the mark is missing, what was put meanwhile stays; in a list it comes first. A value of the copy that
# was set aside cannot be read in the copy either. What is there then is not as in the copy, so the mark is higher.
_RESTORE = (
    _READ
    + """
local copy, found = cjson.decode(ARGV[1]), redis.call('GET', KEYS[1])
local mark, copied, told, is_copied = number(found), copy.number or 0, {'same'}, true
if found and mark > copied then return told end
for _, entry in ipairs(copy.entries) do
  local key, kind, values, digest = entry[1], entry[2], entry[3], entry[4]
  local _, _, present = read(key)
  local is_wrong = found and (mark < copied or (digest and digest ~= present))
  if is_wrong and mark == copied and redis.call('HGET', KEYS[2], key) == values[1] then
    is_wrong, is_copied = false, false
  end
  if is_wrong then
    redis.call('DEL', key)
    redis.call('HDEL', KEYS[2], key)
    if mark == copied then told[#told + 1] = key end
  end
  if is_wrong or not found then
    if kind == 'string' then redis.call('SETNX', key, values[1])
    elseif kind == 'hash' then
      for i = 1, #values, 2 do redis.call('HSETNX', key, values[i], values[i + 1]) end
    else
      for _, value in ipairs(values) do redis.call('RPUSH', key, value) end
    end
  end
end
if mark < copied then told[1] = 'lost' elseif #told > 1 then told[1] = 'spoilt' end
if mark < copied or not is_copied then redis.call('SET', KEYS[1], copied + 1) end
return told
"""
)
# KEYS: mark. Where there is none, the rest is lost, too.
_NOTE_WRITE = _READ + "if number(redis.call('GET', KEYS[1])) >= 0 then redis.call('INCR', KEYS[1]) end"


class _Found(StrEnum):
    """What a look at Redis finds, beside the copy."""

    SAME = "same"
    NEWER = "newer"
    SPOILT = "spoilt"
    LOST = "lost"


class KeptData:
    """The copy. Stores over `Database.writing` of this object's keep it up to date.

    Attributes:
        faults: the values that could not be read, in the copy neither.

    Args:
        on_restored: writes again what the copy does not hold, each time that Redis had lost its data.
        path: the file that has the copy too, for `recover`; None for none.
    """

    def __init__(
        self, database: Database, *, on_restored: Callable[[], Awaitable[None]], path: Path | None = None
    ) -> None:
        self.faults: tuple[str, ...] = ()
        self._database = database
        self._redis = database.redis
        self._mark = KEPT.key(database.namespace)
        self._patterns = [family.key(database.namespace, *_any(family.pattern)) for family in KEPT_FAMILIES]
        self._on_restored = on_restored
        self._path = path
        self._writing = asyncio.Lock()
        self._copy = json.dumps({"number": 0, "entries": []})
        self._number = 0  # of the copy
        self._digests: list[str] = []  # each after its key
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
            while await self._look(is_writing=True) in (_Found.LOST, _Found.SPOILT):
                await self._restore()
            self._is_stale = True
            yield
            if not await self._take_copy():
                raise UnavailableError("Redis has lost its data while this was written.", hint="Try again.")

    async def keep(self) -> None:
        """Writes again what was lost or spoilt, for as long as the process lives."""
        for number in itertools.count():
            try:
                async with self._writing:
                    await self._catch_up(compares=number % _COMPARE_EVERY == 0)
            except HeadwayError as error:
                log.debug("whether Redis has lost its data is not known: %s", error)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _catch_up(self, *, compares: bool) -> None:
        found = await self._look(compares=compares)
        if found in (_Found.LOST, _Found.SPOILT):
            await self._restore()
        if self._is_stale or found is _Found.NEWER:
            await self._take_copy()
        if compares:
            self.faults = tuple(
                f"{key} could not be read and was set aside" for key in await spoilt_keys(self._database)
            )

    async def _look(self, *, compares: bool = True, is_writing: bool = False) -> _Found:
        digests = self._digests if compares else ()
        arguments = (self._mark, str(self._number), str(int(is_writing)), *digests)
        with redis_faults():
            return _Found(await cast("Awaitable[str]", self._redis.eval(_LOOK, 1, *arguments)))

    async def _restore(self) -> None:
        found, spoilt = await _restored(self._database, self._copy)
        self._is_stale = True
        if found is _Found.LOST:
            log.error("Redis had lost its data; plans, placements and API keys are written again")
            await self._on_restored()
        elif found is _Found.SPOILT:
            log.error("Redis had other values than were written there; written again: %s", ", ".join(spoilt))

    async def _take_copy(self) -> bool:
        """Whether Redis had lost nothing; else that is written again first."""
        was_whole = True
        while (copy := await self._read()) is None:
            was_whole = False
            await self._restore()
        if self._path is not None:
            await asyncio.to_thread(_write, self._path, json.dumps(copy))
        self._copy, self._number, self._is_stale = json.dumps(copy), copy["number"], False
        self._digests = [part for key, _, _, digest in copy["entries"] for part in (key, digest)]
        return was_whole

    async def _read(self) -> dict[str, Any] | None:
        """A new copy; None where Redis has lost something since the last one."""
        arguments = (self._mark, str(self._number), *self._patterns)
        with redis_faults():
            found = await cast("Awaitable[str | None]", self._redis.eval(_COPY, 1, *arguments))
        if found is None:
            return None
        copy: dict[str, Any] = json.loads(found)
        entries = copy["entries"] or []  # Lua knows no empty list
        return copy | {"entries": [entry for entry in entries if _is_text(entry[2])]}


async def recover(database: Database, path: Path) -> None:
    """Writes again what Redis has lost, or holds otherwise, since the last controller wrote its copy to that file; to
    be called before anything is read. A file that cannot be read is left out."""
    try:
        copy = await asyncio.to_thread(_read_copy, path)
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, LookupError) as error:
        log.warning("%s cannot be read, and helps nobody: %s", path, error)
        return
    found, spoilt = await _restored(database, copy)
    if found is _Found.LOST:
        log.error("Redis had lost its data and the controller its life; what is in %s is written again", path)
    elif found is _Found.SPOILT:
        log.error("Redis had other values than are in %s; written again: %s", path, ", ".join(spoilt))


async def note_write(database: Database) -> None:
    """To be called before any of this is written while no controller lives: it is not taken for spoilt then."""
    with redis_faults():
        await cast("Awaitable[None]", database.redis.eval(_NOTE_WRITE, 1, KEPT.key(database.namespace)))


async def _restored(database: Database, copy: str) -> tuple[_Found, list[str]]:
    """What was found, and the keys of what had been spoilt."""
    keys = (KEPT.key(database.namespace), SPOILT.key(database.namespace))
    with redis_faults():
        found, *spoilt = await cast("Awaitable[list[str]]", database.redis.eval(_RESTORE, 2, *keys, copy))
    return _Found(found), spoilt


def _read_copy(path: Path) -> str:
    """The copy in a file, but for entries that are not as they were written."""
    copy = json.loads(path.read_text())
    if isinstance(copy, list):  # of before there were numbers
        copy = {"number": 0, "entries": copy}
    whole = [[key, *value] for key, *value in copy["entries"] if _is_whole(*value)]
    if len(whole) < len(copy["entries"]):
        log.error("%s has %d values that are not as they were written", path, len(copy["entries"]) - len(whole))
    return json.dumps(copy | {"entries": whole})


def _is_whole(kind: str, values: list[str], digest: str | None = None) -> bool:
    """Copies of before there were digests have none."""
    return digest in (None, _digest(kind, values))


def _digest(kind: str, values: list[str]) -> str:
    """As `_READ` has it."""
    return hashlib.sha1("\n".join([kind, *values]).encode(), usedforsecurity=False).hexdigest()


def _is_text(values: list[str]) -> bool:
    """Whether they can be read at all: JSON has no other bytes."""
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        return False
    return True


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
