"""API keys in Redis."""

import json
from collections.abc import Awaitable
from typing import cast

from headway.core.api_key import ApiKeyRecord
from headway.core.codec import from_document, to_document
from headway.store.redis import Database, redis_faults
from headway.store.schema import API_KEYS


class ApiKeyStore:
    """The keys that were made while the stack ran, those that open nothing any more among them."""

    def __init__(self, database: Database) -> None:
        self._redis = database.redis
        self._writing = database.writing
        self._key = API_KEYS.key(database.namespace)

    async def put(self, record: ApiKeyRecord) -> None:
        """Keeps a key, in place of one of the same id."""
        text = json.dumps(to_document(record))
        async with self._writing():
            with redis_faults():
                await cast("Awaitable[int]", self._redis.hset(self._key, record.key_id, text))

    async def get(self, key_id: str) -> ApiKeyRecord | None:
        with redis_faults():
            text = await cast("Awaitable[str | None]", self._redis.hget(self._key, key_id))
        return None if text is None else from_document(ApiKeyRecord, json.loads(text))

    async def all(self) -> list[ApiKeyRecord]:
        """Returns all keys, the oldest first."""
        with redis_faults():
            texts = await cast("Awaitable[list[str]]", self._redis.hvals(self._key))
        records = [from_document(ApiKeyRecord, json.loads(text)) for text in texts]
        return sorted(records, key=lambda record: (record.created_at_s, record.key_id))
