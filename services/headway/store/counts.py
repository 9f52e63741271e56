"""Counts in Redis, by name, that several may add to; one that is no number any more begins anew."""

from collections.abc import Awaitable, Mapping
from typing import cast

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

_LONGEST = 15  # digits, which an addition cannot overflow

# KEYS: the counts. ARGV: a name and what is added, again and again. Returns all names and counts.
_ADD = f"""
for index = 1, #ARGV, 2 do
  local found = redis.call('HGET', KEYS[1], ARGV[index])
  if found and (#found > {_LONGEST} or not string.match(found, '^%d+$')) then
    redis.call('HDEL', KEYS[1], ARGV[index])
  end
  redis.call('HINCRBY', KEYS[1], ARGV[index], ARGV[index + 1])
end
return redis.call('HGETALL', KEYS[1])
"""


async def add_counts(redis: Redis, key: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Adds to some counts, all or none; returns all that are there then."""
    found = await cast("Awaitable[list[str]]", redis.eval(_ADD, 1, key, *_arguments(counts)))
    return read_counts(dict(zip(found[::2], found[1::2], strict=True)))


def queue_counts(pipeline: Pipeline, key: str, counts: Mapping[str, int]) -> None:
    """Has a pipeline add to some counts, with what else it does."""
    pipeline.eval(_ADD, 1, key, *_arguments(counts))


def read_counts(texts: Mapping[str, str]) -> dict[str, int]:
    """The counts of a hash, but for those that are none any more."""
    return {name: int(text) for name, text in texts.items() if len(text) <= _LONGEST and text.isdecimal()}


def _arguments(counts: Mapping[str, int]) -> list[str]:
    return [part for name, num in counts.items() for part in (name, str(num))]
