"""The standing duty to re-plan, and what came of it so far."""

import json
from collections.abc import Awaitable
from typing import cast

from headway.core.codec import from_document, to_document
from headway.core.replacement import Replacement, ReplacementDecision
from headway.store.documents import Documents
from headway.store.redis import Database, redis_faults
from headway.store.schema import REPLACEMENT, REPLACEMENT_DECISIONS

_MOST_DECISIONS = 50


class ReplacementStore:
    """Every method raises UnavailableError while Redis is away."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._duty = Documents(database, REPLACEMENT, Replacement)

    async def duty(self) -> Replacement | None:
        return await self._duty.get()

    async def set_duty(self, duty: Replacement | None) -> None:
        """None for no more."""
        if duty is None:
            await self._duty.delete()
        else:
            await self._duty.put(duty)

    async def add(self, decision: ReplacementDecision) -> None:
        with redis_faults():
            async with self._database.redis.pipeline(transaction=True) as pipeline:
                pipeline.lpush(self._key, json.dumps(to_document(decision)))
                pipeline.ltrim(self._key, 0, _MOST_DECISIONS - 1)
                await pipeline.execute()

    async def decisions(self) -> tuple[ReplacementDecision, ...]:
        """The newest first."""
        with redis_faults():
            texts = await cast("Awaitable[list[str]]", self._database.redis.lrange(self._key, 0, -1))
        return tuple(from_document(ReplacementDecision, json.loads(text)) for text in texts)

    @property
    def _key(self) -> str:
        return REPLACEMENT_DECISIONS.key(self._database.namespace)
