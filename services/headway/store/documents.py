"""Typed documents in Redis: profiles, and the deployment that the user asked for."""

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError
from headway.store.redis import Database, redis_faults
from headway.store.schema import SPOILT, KeyFamily
from headway.store.spoilt import decode_or_set_aside, set_aside

T = TypeVar("T")

log = logging.getLogger(__name__)


class Documents(Generic[T]):
    """One key family of JSON documents of one type. Every write is a whole document. One that cannot be read any more
    is not there: it is set aside (`headway.store.spoilt`).

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
        decode: Callable[..., T] = from_document,
    ) -> None:
        self._database = database
        self._family = family
        self._kind = kind
        self._encode = encode
        self._decode = decode

    async def put(self, value: T, *parts: str, is_stand_in: bool = False) -> None:
        """Writes one anew. A stand-in for what was set aside leaves that named."""
        async with self._database.writing():
            with redis_faults():
                async with self._database.redis.pipeline(transaction=True) as pipeline:
                    pipeline.set(self._key(*parts), json.dumps(self._encode(value)))
                    if not is_stand_in:
                        pipeline.hdel(SPOILT.key(self._database.namespace), self._key(*parts))
                    await pipeline.execute()

    async def get(self, *parts: str) -> T | None:
        """InvalidArgumentError where it is there and does not fit its type."""
        key = self._key(*parts)
        with redis_faults():
            text = await self._database.redis.get(key)
        return None if text is None else await self._read(key, text, path=":".join(parts))

    async def get_or_set_aside(self, *parts: str) -> T | None:
        """The same, for whoever cannot go on without: one that does not fit its type is set aside, too."""
        try:
            return await self.get(*parts)
        except InvalidArgumentError as error:
            key = self._key(*parts)
            with redis_faults():
                text = await self._database.redis.get(key)
            await set_aside(self._database, text or "", key=key, why=f"{key} does not fit its type: {error.message}")
            return None

    async def delete(self, *parts: str) -> bool:
        """Whether it was there."""
        async with self._database.writing():
            with redis_faults():
                return bool(await self._database.redis.delete(self._key(*parts)))

    async def all(self) -> list[T]:
        """Every document of a family with one placeholder, in the order of their keys, but for those that do not fit
        their type."""
        redis = self._database.redis
        with redis_faults():
            keys = sorted([key async for key in redis.scan_iter(match=self._key("*"), count=1000)])
            texts = await redis.mget(keys) if keys else []
        found = []
        for key, text in zip(keys, texts, strict=True):
            try:
                value = None if text is None else await self._read(key, text, path=key)
            except InvalidArgumentError as error:
                log.warning("%s is left out: %s", key, error)
            else:
                found += [] if value is None else [value]
        return found

    async def _read(self, key: str, text: str, *, path: str) -> T | None:
        decode = partial(self._decode, self._kind, path=path, is_stored=True)
        return await decode_or_set_aside(self._database, decode, text, key=key)

    def _key(self, *parts: str) -> str:
        return self._family.key(self._database.namespace, *parts)
