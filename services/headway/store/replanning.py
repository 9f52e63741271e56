"""The store of the re-planning loop and of its decisions so far."""

import json
import logging
from collections.abc import Awaitable
from functools import partial
from typing import cast

from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError
from headway.core.replanning import ReplanningDecision, ReplanningPolicy
from headway.store.documents import Documents
from headway.store.redis import Database, redis_faults
from headway.store.schema import REPLANNING, REPLANNING_DECISIONS
from headway.store.spoilt import SpoiltError, decode

log = logging.getLogger(__name__)

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
        return tuple(decision for text in texts if (decision := self._read(text)) is not None)

    def _read(self, text: str) -> ReplanningDecision | None:
        """None for one that cannot be read: others follow on it."""
        try:
            return decode(partial(from_document, ReplanningDecision, is_stored=True), text, key=self._key)
        except (SpoiltError, InvalidArgumentError) as error:
            log.warning("a decision is left out: %s", error.message)
            return None

    @property
    def _key(self) -> str:
        return REPLANNING_DECISIONS.key(self._database.namespace)
