"""Values in Redis that are there and cannot be read: bytes that have changed on a disk, or that a hand has put there.

Such a value is *set aside*: it goes to a hash of its own, by the name of its key, for a week, and is as lost where it
was. Nobody ends because of it, nobody meets it twice, and `headway status` names it until it is written anew.
"""

import json
import logging
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from headway.core.errors import HeadwayError, InternalError
from headway.store.redis import Database, redis_faults
from headway.store.schema import SPOILT

T = TypeVar("T")

log = logging.getLogger(__name__)

UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, zlib.error)
"""What reading a spoilt value raises."""

# KEYS: the value's; those set aside. ARGV: the value that could not be read, seconds. One that was written since stays.
_SET_ASIDE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[2], KEYS[1], ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return redis.call('DEL', KEYS[1])
"""


class SpoiltError(InternalError):
    """Something that Redis holds cannot be read."""

    def __init__(self, key: str, why: object) -> None:
        super().__init__(f"Redis holds under {key} what cannot be read: {why}", hint="Something else wrote there.")


def decode(read: Callable[[Any], T], text: str, *, key: str) -> T:
    """What `read` makes of a JSON text that was found under a key; SpoiltError where that cannot be read, or the
    HeadwayError of `read` where it is of another form."""
    try:
        text.encode()  # bytes that are no text are surrogates here
        return read(json.loads(text))
    except HeadwayError:
        raise
    except UNREADABLE as error:
        raise SpoiltError(key, error) from error


async def decode_or_set_aside(database: Database, read: Callable[[Any], T], text: str, *, key: str) -> T | None:
    """The same of a string that is one value; None where it cannot be read, and then it is there no more. One of
    another form stays: a later version may have written it."""
    try:
        return decode(read, text, key=key)
    except SpoiltError as error:
        await set_aside(database, text, key=key, why=error.message)
        return None


async def set_aside(database: Database, text: str, *, key: str, why: str) -> None:
    """Sets aside a string that is one value, unless another one was written there since."""
    with redis_faults():
        arguments = (key, SPOILT.key(database.namespace), text, str(_ttl_s()))
        if await cast("Awaitable[int]", database.redis.eval(_SET_ASIDE, 2, *arguments)):
            log.warning("%s It is set aside", why)


async def spoilt_keys(database: Database) -> list[str]:
    """The keys of all values that were set aside, and not written anew since."""
    with redis_faults():
        return sorted(await cast("Awaitable[list[str]]", database.redis.hkeys(SPOILT.key(database.namespace))))


def _ttl_s() -> int:
    assert SPOILT.ttl_s is not None, "what is set aside is kept for a while"
    return int(SPOILT.ttl_s)
