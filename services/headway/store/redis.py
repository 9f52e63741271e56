"""The connection to Redis, and the one place that turns its faults into ours."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from headway.core.errors import InternalError, UnavailableError
from headway.store.sentinel import SentinelAddress, parse_sentinel_url

_TIMEOUT_S = 2.0
_OPTIONS: dict[str, Any] = {
    "decode_responses": True,
    "encoding_errors": "surrogateescape",  # of values that are spoilt: who reads them tells which ones
    "socket_timeout": _TIMEOUT_S,
    "socket_connect_timeout": _TIMEOUT_S,
    "retry": Retry(NoBackoff(), 1),
}


@dataclass(frozen=True, slots=True)
class Database:
    """A Redis connection pool and the namespace of one stack.

    Attributes:
        writing: surrounds each write of what must not be lost; see `KeptData.writing`.
    """

    redis: Redis
    namespace: str
    writing: Callable[[], AbstractAsyncContextManager[None]] = nullcontext

    @classmethod
    def connect(cls, url: str, *, namespace: str) -> "Database":
        """Connects lazily: the first command finds out whether Redis is there.

        Args:
            url: redis://, rediss://, unix://, or that of sentinels (`parse_sentinel_url`), which know the primary.
        """
        address = parse_sentinel_url(url)
        redis = Redis.from_url(url, **_OPTIONS) if address is None else _primary(address)
        return cls(redis, namespace)

    async def close(self) -> None:
        await self.redis.aclose()


def _primary(address: SentinelAddress) -> Redis:
    """Whichever server is the primary: a connection that is made anew asks the sentinels again."""
    login = {"username": address.username or None, "password": address.password or None}
    options = _OPTIONS | login | {"ssl": address.has_tls}
    sentinels = Sentinel(address.sentinels, sentinel_kwargs=options, **options)  # type: ignore[no-untyped-call]
    return cast("Redis", sentinels.master_for(address.service, db=address.database))


@contextmanager
def redis_faults() -> Iterator[None]:
    """Connection faults become UnavailableError, anything else that Redis refuses InternalError.

    A cancellation stays one: the client waits with `asyncio.wait_for`, which before Python 3.12 drops a cancellation
    that comes together with the result, and a loop around a command would then never end.
    """
    num_cancellations = _num_cancellations()
    try:
        try:
            yield
        finally:
            if _num_cancellations() > num_cancellations:
                raise asyncio.CancelledError
    except (RedisConnectionError, RedisTimeoutError, OSError) as error:
        raise UnavailableError(
            f"Redis cannot be reached ({error}).", hint="Serving goes on; try again when Redis is back."
        ) from error
    except RedisError as error:
        raise InternalError(f"Redis refused a command: {error}") from error


def _num_cancellations() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
