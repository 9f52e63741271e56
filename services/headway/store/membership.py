"""Who is alive: each process holds a lease in Redis and renews it."""

import json
from dataclasses import dataclass
from functools import lru_cache

from headway.core.codec import from_document, to_document
from headway.store.redis import Database, redis_faults
from headway.store.schema import MEMBER

RENEW_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A live process.

    Attributes:
        kind: 'router', 'worker', ...
        endpoint: host:port of its gRPC server.
        metrics_endpoint: host:port that serves /metrics.
        started_at_s: seconds since 1970; of two members with one kind the newer one is asked first.
        models, group_id: what a worker serves; empty for others, and before it has loaded.
        rank: in its group; requests go to rank 0 only.
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

    @property
    def is_leader(self) -> bool:
        """Whether it speaks for its group; a lone worker does."""
        return self.rank == 0


class Membership:
    """Leases of all processes of a stack."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def renew(self, member: Member) -> None:
        """Writes the lease; it lapses `MEMBER.ttl_s` after the last call."""
        assert MEMBER.ttl_s is not None
        key = MEMBER.key(self._database.namespace, member.kind, member.member_id)
        with redis_faults():
            await self._database.redis.set(key, json.dumps(to_document(member)), px=int(MEMBER.ttl_s * 1000))

    async def withdraw(self, member: Member) -> None:
        key = MEMBER.key(self._database.namespace, member.kind, member.member_id)
        with redis_faults():
            await self._database.redis.delete(key)

    async def members(self, kind: str = "*") -> list[Member]:
        """Live members of a kind (all kinds by default), the newest first."""
        redis = self._database.redis
        pattern = MEMBER.key(self._database.namespace, kind, "*")
        with redis_faults():
            keys = [key async for key in redis.scan_iter(match=pattern, count=1000)]
            texts = await redis.mget(keys) if keys else []
        found = [_read(text) for text in texts if text is not None]
        return sorted(found, key=lambda member: (-member.started_at_s, member.member_id))


@lru_cache(maxsize=1024)
def _read(text: str) -> Member:
    """Every process reads all leases twice a second, and they hardly ever change."""
    return from_document(Member, json.loads(text))
