"""Requests in quarantine, and turns of those that are suspects, in Redis: of all gateways together.

Requests are known by fingerprints; what they ask for is kept nowhere. Times are Redis's own; where its clock was set
back, a request is known for an hour from then on.
"""

from collections.abc import Awaitable
from typing import cast

from headway.core.suspicion import Suspicion
from headway.store.lapse import SHORTEN
from headway.store.redis import Database, redis_faults
from headway.store.schema import QUARANTINE, SUSPECT_TURN, SUSPECTS

_MAX_KNOWN = 1024

# KEYS: fingerprints with the time until which they are known. ARGV: seconds, how many are known at most, fingerprint.
_ADD = """
redis.call('ZADD', KEYS[1], redis.call('TIME')[1] + ARGV[1], ARGV[3])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[1])
"""
# KEYS: the same. ARGV: seconds. Returns each with the seconds that are left.
_READ = """
local now = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local found = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for index = 2, #found, 2 do
  local left = tonumber(found[index]) - now
  if left > tonumber(ARGV[1]) then
    left = tonumber(ARGV[1])
    redis.call('ZADD', KEYS[1], now + left, found[index - 1])
  end
  found[index] = left
end
return found
"""
# KEYS: the turn. ARGV: whose it is, milliseconds.
_TAKE = (
    SHORTEN
    + """
shorten(KEYS[1], ARGV[2])
local found = redis.call('GET', KEYS[1])
if found and found ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
)
_END = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0"


class QuarantineStore:
    """Implements `headway.gateway.quarantine.QuarantineBook`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._keys = {
            Suspicion.SEALED: QUARANTINE.key(database.namespace),
            Suspicion.SUSPECT: SUSPECTS.key(database.namespace),
        }

    async def put(self, fingerprint: str, suspicion: Suspicion) -> None:
        """Keeps a fingerprint for an hour from now on."""
        arguments = (_ttl_s(), str(_MAX_KNOWN), fingerprint)
        with redis_faults():
            await cast("Awaitable[None]", self._database.redis.eval(_ADD, 1, self._keys[suspicion], *arguments))

    async def clear(self, fingerprint: str) -> None:
        """Forgets a suspect."""
        with redis_faults():
            await self._database.redis.zrem(self._keys[Suspicion.SUSPECT], fingerprint)

    async def read(self, suspicion: Suspicion) -> dict[str, float]:
        """The seconds that each is known for yet."""
        with redis_faults():
            found = await cast(
                "Awaitable[list[str]]", self._database.redis.eval(_READ, 1, self._keys[suspicion], _ttl_s())
            )
        return {fingerprint: float(left_s) for fingerprint, left_s in zip(found[::2], found[1::2], strict=True)}

    async def take_turn(self, model: str, *, owner: str) -> bool:
        """Whether it is this suspect's turn now, among those of a model; it is for a few seconds from then on."""
        assert SUSPECT_TURN.ttl_s is not None
        ttl_ms = str(int(SUSPECT_TURN.ttl_s * 1000))
        with redis_faults():
            taken = self._database.redis.eval(_TAKE, 1, self._turn(model), owner, ttl_ms)
            return bool(await cast("Awaitable[int]", taken))

    async def end_turn(self, model: str, *, owner: str) -> None:
        """Passes the turn on, if it still is that suspect's."""
        with redis_faults():
            await cast("Awaitable[int]", self._database.redis.eval(_END, 1, self._turn(model), owner))

    def _turn(self, model: str) -> str:
        return SUSPECT_TURN.key(self._database.namespace, model)


def _ttl_s() -> str:
    assert QUARANTINE.ttl_s is not None
    return str(int(QUARANTINE.ttl_s))
