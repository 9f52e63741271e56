"""API keys in Redis."""

import json
import logging
from collections.abc import Awaitable
from functools import partial
from typing import cast

from headway.core.api_key import ApiKeyRecord
from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError
from headway.store.redis import Database, redis_faults
from headway.store.schema import API_KEYS
from headway.store.spoilt import SpoiltError, decode

log = logging.getLogger(__name__)


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
        return None if text is None else self._read(key_id, text)

    async def all(self) -> list[ApiKeyRecord]:
        """Returns all keys, the oldest first."""
        with redis_faults():
            texts = await cast("Awaitable[dict[str, str]]", self._redis.hgetall(self._key))
        records = [self._read(key_id, text) for key_id, text in texts.items()]
        return sorted(records, key=lambda record: (record.created_at_s, record.key_id))

    def _read(self, key_id: str, text: str) -> ApiKeyRecord:
        """One that cannot be read opens nothing, and keys are asked for all the same."""
        try:
            return decode(partial(from_document, ApiKeyRecord, is_stored=True), text, key=f"{self._key} {key_id}")
        except (SpoiltError, InvalidArgumentError) as error:
            log.warning("the key %s opens nothing: %s", key_id, error.message)
            return ApiKeyRecord(key_id=key_id, hashed="", created_at_s=0.0, revoked_at_s=0.0)
