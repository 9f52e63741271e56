"""The right to launch and end the processes of a stack, which one controller has at a time.

It is a lease in Redis with an *epoch*: a number that is higher with every controller that gets it. A controller says
its epoch with each command, and workers refuse those of a lower one than they have heard: what an earlier controller
still had on its way, or says when it wakes up after a stop, is void.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import cast

from headway.core.errors import HeadwayError
from headway.store.lapse import SHORTEN
from headway.store.redis import Database, redis_faults
from headway.store.schema import CONTROLLER_EPOCH, CONTROLLER_LEASE

log = logging.getLogger(__name__)

_RENEW_EVERY_S = 1.0
_LOOK_EVERY_S = 0.25
_ENDED = "ended"

# KEYS: lease. ARGV: milliseconds.
_LOOK = SHORTEN + "shorten(KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])"

# An epoch that is no number has been spoilt. It is as lost, and so is a lease that begins with none.
_READ = """
local function epoch()
  local found = redis.call('GET', KEYS[2])
  return found and #found < 15 and string.match(found, '^%d+$') and tonumber(found) or 0
end
"""
# KEYS: lease, epoch. ARGV: what may be there already, who wants it, milliseconds, an epoch that there was.
_TAKE = (
    _READ
    + """
local found = redis.call('GET', KEYS[1])
if found and found ~= ARGV[1] then return 0 end
local next = math.max(epoch(), tonumber(ARGV[4])) + 1
redis.call('SET', KEYS[2], next)
redis.call('SET', KEYS[1], next .. ' ' .. ARGV[2], 'PX', ARGV[3])
return next
"""
)
# KEYS: lease, epoch. ARGV: ours, our epoch, milliseconds, what to write. Where the epoch is a lower one, Redis has lost
# it.
_RENEW = (
    _READ
    + """
local found = redis.call('GET', KEYS[1])
if found and found ~= ARGV[1] and (found == 'ended' or string.match(found, '^%d+ ')) then return 0 end
if epoch() > tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('SET', KEYS[1], ARGV[4], 'PX', ARGV[3])
return 1
"""
)


class ControllerLease:
    """One controller's hold on its stack.

    Attributes:
        epoch: of this controller; 0 before it has the lease.

    Args:
        run: pid and start of this process, see `headway.observe.process_start`.
        has_ended: whether such a run is known to have ended, so that nobody need wait until its lease lapses.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        database: Database,
        *,
        run: str,
        has_ended: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert CONTROLLER_LEASE.ttl_s is not None
        self.epoch = 0
        self._ttl_s = CONTROLLER_LEASE.ttl_s
        self._ttl_ms = str(round(1000 * self._ttl_s))
        self._redis = database.redis
        self._keys = [family.key(database.namespace) for family in (CONTROLLER_LEASE, CONTROLLER_EPOCH)]
        self._run = run
        self._has_ended = has_ended
        self._clock = clock
        self._renewed_s = -math.inf
        self._seen_epoch, self._seen_s = 0, -math.inf  # of the last other controller that held the lease
        self._is_over = False  # the stack was shut down

    @property
    def _own(self) -> str:
        return f"{self.epoch} {self._run}"

    async def acquire(self, *, until: asyncio.Event) -> bool:
        """Waits for the lease; False where `until` is set before, or the stack was shut down meanwhile."""
        is_first = True
        while not until.is_set():
            try:
                found = await self._holder()
                if found == _ENDED and not is_first:
                    log.info("the stack was shut down")
                    return False
                if await self._take(found):
                    log.info("this controller has epoch %d", self.epoch)
                    return True
                if is_first:
                    log.info("another controller is at work; this one stands by")
                is_first = False
            except HeadwayError as error:
                log.warning("waiting for the controller's lease: %s", error)
            await asyncio.sleep(_LOOK_EVERY_S)
        return False

    async def keep(self, *, on_loss: Callable[[], None]) -> None:
        """Renews the lease for as long as the process lives; `on_loss` is called once another controller has it."""
        is_ours = True
        while is_ours:
            await asyncio.sleep(_RENEW_EVERY_S)
            if self._is_over:
                return
            try:
                is_ours = await self._write(self._own)
            except HeadwayError as error:
                log.warning("the controller's lease is not renewed: %s", error)
        log.critical("another controller has taken over; this one ends, and leaves all processes to it")
        on_loss()

    async def may_act(self) -> bool:
        """Whether processes may be launched and ended now: the lease is surely ours. Where it has not been renewed for
        a while, because this process stood still, Redis is asked; while that is away nobody may."""
        if self._clock() - self._renewed_s < self._ttl_s / 2:
            return True
        try:
            return await self._write(self._own)
        except HeadwayError as error:
            log.warning("nothing is launched or ended without the controller's lease: %s", error)
            return False

    async def end(self) -> None:
        """Tells controllers that stand by that the stack was shut down."""
        self._is_over = True
        try:
            await self._write(_ENDED)
        except HeadwayError as error:
            log.warning("controllers that stand by are not told of the end: %s", error)

    async def _holder(self) -> str:
        with redis_faults():
            looking = self._redis.eval(_LOOK, 1, self._keys[0], self._ttl_ms)
            return await cast("Awaitable[str | None]", looking) or ""

    async def _take(self, found: str) -> bool:
        held_by, _, run = found.partition(" ")
        if held_by.isdecimal():
            self._seen_epoch, self._seen_s = int(held_by), self._clock()
            if not self._has_ended(run):
                return False
        elif found != _ENDED and await self._is_lost(is_spoilt=bool(found)):
            return False
        asked_s = self._clock()
        epoch = await self._eval(_TAKE, found, self._run, self._ttl_ms, str(self._seen_epoch))
        if epoch:
            self.epoch, self._renewed_s = epoch, asked_s
        return bool(epoch)

    async def _is_lost(self, *, is_spoilt: bool) -> bool:
        """Whether Redis has lost the lease of one that was there a moment ago, or holds something else in its place:
        it comes before us, for it knows the rest of what was lost.
        """
        if self._clock() - self._seen_s > self._ttl_s:
            return False
        if is_spoilt:
            return True
        with redis_faults():
            return not await self._redis.exists(self._keys[1])

    async def _write(self, text: str) -> bool:
        """False where another controller has had the lease since."""
        asked_s = self._clock()
        is_ours = await self._eval(_RENEW, self._own, str(self.epoch), self._ttl_ms, text)
        if is_ours:
            self._renewed_s = asked_s
        return bool(is_ours)

    async def _eval(self, script: str, *arguments: str) -> int:
        with redis_faults():
            return int(await cast("Awaitable[str]", self._redis.eval(script, 2, *self._keys, *arguments)))


async def dismiss_controllers(database: Database) -> tuple[int, str] | None:
    """Tells all controllers that the stack ends, those that stand by too; returns pid and start of the one at work."""
    assert CONTROLLER_LEASE.ttl_s is not None
    key, ttl_ms = CONTROLLER_LEASE.key(database.namespace), round(1000 * CONTROLLER_LEASE.ttl_s)
    with redis_faults():
        found = str(await database.redis.set(key, _ENDED, px=ttl_ms, get=True) or "")
    pid, _, start = found.partition(" ")[2].partition(" ")
    return (int(pid), start) if start and pid.isdecimal() else None
