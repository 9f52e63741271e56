"""The store of the re-planning loop and of its decisions so far."""

import json
from collections.abc import Awaitable
from typing import cast

from headway.core.codec import from_document, to_document
from headway.core.replanning import ReplanningDecision, ReplanningPolicy
from headway.store.documents import Documents
from headway.store.redis import Database, redis_faults
from headway.store.schema import REPLANNING, REPLANNING_DECISIONS

_MOST_DECISIONS = 50


class ReplanningStore:
    """Every method raises UnavailableError while Redis is away."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._duty = Documents(database, REPLANNING, ReplanningPolicy)

    async def duty(self) -> ReplanningPolicy | None:
        return await self._duty.get()

    async def set_duty(self, duty: ReplanningPolicy | None) -> None:
        """Sets the loop's policy; None ends the loop."""
        if duty is None:
            await self._duty.delete()
        else:
            await self._duty.put(duty)

    async def add(self, decision: ReplanningDecision) -> None:
        async with self._database.writing():
            with redis_faults():
                async with self._database.redis.pipeline(transaction=True) as pipeline:
                    pipeline.lpush(self._key, json.dumps(to_document(decision)))
                    pipeline.ltrim(self._key, 0, _MOST_DECISIONS - 1)
                    await pipeline.execute()

    async def decisions(self) -> tuple[ReplanningDecision, ...]:
        """Returns the decisions, the newest first."""
        with redis_faults():
            texts = await cast("Awaitable[list[str]]", self._database.redis.lrange(self._key, 0, -1))
        return tuple(from_document(ReplanningDecision, json.loads(text)) for text in texts)

    @property
    def _key(self) -> str:
        return REPLANNING_DECISIONS.key(self._database.namespace)
