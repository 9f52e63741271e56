"""The membership of live processes: each holds a lease in Redis, renews it, and announces when it comes, changes or
goes.
"""

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import cast

from redis.asyncio.client import PubSub

from headway.core.codec import from_document, to_document
from headway.core.errors import HeadwayError, InvalidArgumentError, UnavailableError
from headway.store.lapse import SHORTEN
from headway.store.redis import Database, redis_faults
from headway.store.schema import MEMBER, MEMBERS_CHANGED
from headway.store.spoilt import SpoiltError, decode

log = logging.getLogger(__name__)

RENEW_EVERY_S = 1.0

# What comes within this time of a first announcement is one with it: a stack's processes start together.
_GATHER_S = 0.02

# In one command, which is most of what a look costs: each process looks once a second. ARGV: pattern, milliseconds.
_READ_ALL = (
    SHORTEN
    + """
local texts, cursor = {}, '0'
repeat
  local found = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 1000)
  cursor = found[1]
  for _, key in ipairs(found[2]) do
    shorten(key, ARGV[2])
    texts[#texts + 1] = redis.call('GET', key)
  end
until cursor == '0'
return texts
"""
)

# Unless another lease is there by now.
_DELETE = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A live process of the stack.

    Attributes:
        kind: the kind of process: 'router', 'worker', ...
        endpoint: the address of its gRPC server, host:port.
        metrics_endpoint: host:port that serves /metrics.
        started_at_s: seconds since 1970; of two members with one kind the newer one is asked first.
        models, group_id: what a worker serves; empty for others, and before it has loaded.
        rank: its rank in its group; requests go to rank 0 only.
        pool: that a worker is of; empty for none.
    """

    kind: str
    member_id: str
    endpoint: str
    metrics_endpoint: str
    pid: int
    started_at_s: float
    state: str = "ready"
    models: tuple[str, ...] = ()
    group_id: str = ""
    rank: int = 0
    pool: str = ""

    @property
    def run(self) -> tuple[str, int, float]:
        """Tells its process from every other one that had or will have its name. A container that is started again
        has the address and the pid of the one before."""
        return self.endpoint, self.pid, self.started_at_s

    @property
    def is_leader(self) -> bool:
        """Whether it speaks for its group; a lone worker does."""
        return self.rank == 0


class Announcements:
    """Announcements of members that came, changed or left. A member that has died or was cut off from Redis announces
    nothing.
    """

    def __init__(self, channel: PubSub, name: str) -> None:
        self._channel = channel
        self._name = name

    async def wait(self, *, timeout_s: float) -> None:
        """Returns after the next announcement, or after `timeout_s`; what was announced meanwhile counts as heard.

        UnavailableError where Redis is away.
        """
        with redis_faults():
            if not self._channel.subscribed:
                await self._channel.subscribe(self._name)
            if await self._channel.get_message(timeout=timeout_s) is not None:
                await asyncio.sleep(_GATHER_S)
                while await self._channel.get_message() is not None:
                    pass


class Membership:
    """Leases of all processes of a stack.

    Where Redis has just refused to write our own lease, was away, or has lost what it had, it has done the same to the
    others: their leases are gone, which means nothing until everyone has had the time to renew its own. Only the
    answer to a renewal tells of that, so nobody looks while one is under way: our own lease may be there again by then.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._fault: HeadwayError | None = None  # of the last write
        self._trusted_from_s = -math.inf
        self._own: dict[tuple[str, str], float] = {}  # by kind and id, when the lease was written
        self._renewing = asyncio.Lock()

    async def enter(self, member: Member) -> None:
        """Writes the lease of a member that is new, or has changed, and announces it."""
        await self.renew(member)
        await self._announce()

    async def renew(self, member: Member) -> None:
        """Writes the lease; it lapses `MEMBER.ttl_s` after the last call."""
        assert MEMBER.ttl_s is not None
        key = MEMBER.key(self._database.namespace, member.kind, member.member_id)
        lease = json.dumps(to_document(member))
        async with self._renewing:
            try:
                with redis_faults():
                    last = await self._database.redis.set(key, lease, px=_ttl_ms(), get=True)
            except HeadwayError as error:
                self._fault = error
                raise
            name = member.kind, member.member_id
            if self._fault is not None or (last is None and self._is_ours(name)):
                self._fault, self._trusted_from_s = None, self._clock() + MEMBER.ttl_s
            self._own[name] = self._clock()

    async def withdraw(self, member: Member) -> None:
        """Ends the lease, and announces it."""
        key = MEMBER.key(self._database.namespace, member.kind, member.member_id)
        self._own.pop((member.kind, member.member_id), None)
        with redis_faults():
            await self._database.redis.delete(key)
        await self._announce()

    async def members(self, kind: str = "*") -> list[Member]:
        """Live members of a kind (all kinds by default), the newest first.

        UnavailableError where Redis is away, or takes no leases or did not a moment ago.
        """
        pattern = MEMBER.key(self._database.namespace, kind, "*")
        async with self._renewing:
            if self._fault is not None:
                raise UnavailableError(
                    f"Redis takes no leases: {self._fault.message}", hint="Serving goes on meanwhile."
                )
            if self._clock() < self._trusted_from_s:
                raise UnavailableError("Redis takes leases again, and not everyone has renewed its own by now.")
            with redis_faults():
                texts = await cast(
                    "Awaitable[list[str | None]]", self._database.redis.eval(_READ_ALL, 0, pattern, str(_ttl_ms()))
                )
        # One that has lapsed since it was found is none.
        try:
            found = {_read(text) for text in texts if text}
        except (SpoiltError, InvalidArgumentError) as error:
            await self._forget_spoilt(pattern)
            raise UnavailableError(f"{error.message} It is deleted, and whose it is writes it again.") from None
        if kind == "*":
            self._check_own(found)
        return sorted(found, key=lambda member: (-member.started_at_s, member.member_id))

    async def _forget_spoilt(self, pattern: str) -> None:
        """Deletes leases that cannot be read, also those that would never lapse."""
        with redis_faults():
            async for key in self._database.redis.scan_iter(match=pattern, count=1000):
                if text := await self._database.redis.get(key):
                    try:
                        _read(text)
                    except (SpoiltError, InvalidArgumentError):
                        log.warning("the lease under %s cannot be read; it is deleted", key)
                        await cast("Awaitable[int]", self._database.redis.eval(_DELETE, 1, key, text))

    def _check_own(self, found: set[Member]) -> None:
        """UnavailableError where the lease that we have just renewed is not among those that were found."""
        assert MEMBER.ttl_s is not None
        present = {(member.kind, member.member_id) for member in found}
        if any(name not in present and self._is_ours(name) for name in self._own):
            self._trusted_from_s = self._clock() + MEMBER.ttl_s
            raise UnavailableError("Redis has lost the leases, and not everyone has renewed its own by now.")

    def _is_ours(self, name: tuple[str, str]) -> bool:
        """Whether we have written the lease so lately that it cannot have lapsed."""
        assert MEMBER.ttl_s is not None
        return self._clock() - self._own.get(name, -math.inf) < MEMBER.ttl_s / 2

    @asynccontextmanager
    async def announcements(self) -> AsyncIterator[Announcements]:
        """Returns the announcements that are made from the first `Announcements.wait` on."""
        async with self._database.redis.pubsub(ignore_subscribe_messages=True) as channel:
            yield Announcements(channel, MEMBERS_CHANGED.key(self._database.namespace))

    async def _announce(self) -> None:
        with redis_faults():
            await self._database.redis.publish(MEMBERS_CHANGED.key(self._database.namespace), "")


def _ttl_ms() -> int:
    assert MEMBER.ttl_s is not None
    return int(MEMBER.ttl_s * 1000)


@lru_cache(maxsize=1024)
def _read(text: str) -> Member:
    """Every process reads all leases again and again, and they hardly ever change. Those of a later version may tell
    more than this one knows: during an upgrade both are there."""
    return decode(partial(from_document, Member, is_stored=True), text, key="member")
