"""Answers that can be taken up again, in Redis."""

import asyncio
import json
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from headway.core.answer_record import AnswerRecord
from headway.core.codec import from_document, to_document
from headway.core.request import SequenceOutput
from headway.store.redis import Database, redis_faults
from headway.store.schema import ANSWER, ANSWER_OUTPUTS
from headway.store.spoilt import decode

# For what of a stream's end may not have reached its client.
_ENDED_TTL_S = 60

# Of the record and its owner, its outputs; a record is there before its outputs, and stays as long.
_APPEND = """
local owner = redis.call('HGET', KEYS[1], 'owner') or ''
if owner ~= ARGV[1] then return owner end
redis.call('RPUSH', KEYS[2], unpack(ARGV, 3))
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return owner
"""
_FORGET = "return redis.call('HGET', KEYS[1], 'owner') == ARGV[1] and redis.call('DEL', KEYS[1], KEYS[2]) or 0"
_TAKE = """
redis.call('HSET', KEYS[1], 'owner', ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return redis.call('LRANGE', KEYS[2], 0, -1)
"""


class AnswerStore:
    """Implements `headway.gateway.answer_journal.AnswerBook`."""

    def __init__(self, database: Database) -> None:
        self._redis = database.redis
        self._namespace = database.namespace

    async def begin(self, record: AnswerRecord, *, owner: str) -> None:
        key, _ = self._keys(record.answer_id)
        fields = {"owner": owner, "record": json.dumps(to_document(record))}
        with redis_faults():
            async with self._redis.pipeline() as pipeline:
                pipeline.hset(key, mapping=fields)
                pipeline.expire(key, _ttl_s())
                await pipeline.execute()

    async def append(self, answer_id: str, outputs: Sequence[SequenceOutput], *, owner: str, has_ended: bool) -> str:
        ttl_s = _ENDED_TTL_S if has_ended else _ttl_s()
        texts = [json.dumps(_what_is_told(to_document(output))) for output in outputs]
        with redis_faults():
            appended = self._redis.eval(_APPEND, 2, *self._keys(answer_id), owner, str(ttl_s), *texts)
            return await cast("Awaitable[str]", appended)

    async def forget(self, answer_id: str, *, owner: str) -> None:
        with redis_faults():
            await cast("Awaitable[int]", self._redis.eval(_FORGET, 2, *self._keys(answer_id), owner))

    async def find(self, answer_id: str) -> AnswerRecord | None:
        """SpoiltError where it cannot be read."""
        key, _ = self._keys(answer_id)
        with redis_faults():
            text = await cast("Awaitable[str | None]", self._redis.hget(key, "record"))
        return None if text is None else decode(partial(from_document, AnswerRecord, is_stored=True), text, key=key)

    async def take(self, record: AnswerRecord, *, owner: str) -> AnswerRecord:
        """SpoiltError where one of its outputs cannot be read: what is missing cannot be told again."""
        _, key = self._keys(record.answer_id)
        with redis_faults():
            taken = self._redis.eval(_TAKE, 2, *self._keys(record.answer_id), owner, str(_ttl_s()))
            texts = await cast("Awaitable[list[str]]", taken)
        read = partial(from_document, SequenceOutput, is_stored=True)
        outputs = await asyncio.to_thread(lambda: tuple([decode(read, text, key=key) for text in texts]))
        return replace(record, outputs=outputs)

    def _keys(self, answer_id: str) -> tuple[str, str]:
        return ANSWER.key(self._namespace, answer_id), ANSWER_OUTPUTS.key(self._namespace, answer_id)


def _what_is_told(document: dict[str, Any]) -> dict[str, Any]:
    """Of an output, most of whose fields are empty."""
    return {name: value for name, value in document.items() if value}


def _ttl_s() -> int:
    assert ANSWER.ttl_s is not None, "answers are kept for a while"
    return int(ANSWER.ttl_s)
