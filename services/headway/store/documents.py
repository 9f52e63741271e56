"""Typed documents in Redis: profiles, and the deployment that the user asked for."""

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from headway.core.codec import from_document, to_document
from headway.store.redis import Database, redis_faults
from headway.store.schema import KeyFamily

T = TypeVar("T")


class Documents(Generic[T]):
    """One key family of JSON documents of one type. Every write is a whole document.

    Args:
        encode, decode: the form of the documents, where it is another than that of plain dataclasses.
    """

    def __init__(
        self,
        database: Database,
        family: KeyFamily,
        kind: type[T],
        *,
        encode: Callable[[T], Any] = to_document,
        decode: Callable[[type[T], Any], T] = from_document,
    ) -> None:
        self._database = database
        self._family = family
        self._kind = kind
        self._encode = encode
        self._decode = decode

    async def put(self, value: T, *parts: str) -> None:
        async with self._database.writing():
            with redis_faults():
                await self._database.redis.set(self._key(*parts), json.dumps(self._encode(value)))

    async def get(self, *parts: str) -> T | None:
        with redis_faults():
            text = await self._database.redis.get(self._key(*parts))
        return None if text is None else self._decode(self._kind, json.loads(text))

    async def delete(self, *parts: str) -> bool:
        """Whether it was there."""
        async with self._database.writing():
            with redis_faults():
                return bool(await self._database.redis.delete(self._key(*parts)))

    async def all(self) -> list[T]:
        """Every document of a family with one placeholder, in the order of their keys."""
        redis = self._database.redis
        with redis_faults():
            keys = sorted([key async for key in redis.scan_iter(match=self._key("*"), count=1000)])
            texts = await redis.mget(keys) if keys else []
        return [self._decode(self._kind, json.loads(text)) for text in texts if text is not None]

    def _key(self, *parts: str) -> str:
        return self._family.key(self._database.namespace, *parts)
