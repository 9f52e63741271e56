"""The desired plan and its history. Of two writers that race, one wins and the other is told."""

import json
from collections.abc import Awaitable
from typing import cast

from headway.core.errors import FailedPreconditionError
from headway.core.plan.document import to_plan_document
from headway.core.plan.serving import ServingPlan
from headway.store.plan_documents import plan_documents
from headway.store.redis import Database, redis_faults
from headway.store.schema import PLAN, PLAN_CURRENT, PLAN_HISTORY

_HISTORY_LENGTH = 100

# KEYS: current, history, plan. ARGV: expected current id, new id, plan document, history length.
_SWAP = """
local current = redis.call('GET', KEYS[1]) or ''
if current ~= ARGV[1] then return current end
redis.call('SET', KEYS[3], ARGV[3])
redis.call('SET', KEYS[1], ARGV[2])
redis.call('LPUSH', KEYS[2], ARGV[2])
redis.call('LTRIM', KEYS[2], 0, ARGV[4] - 1)
return ARGV[2]
"""


class PlanStore:
    """The store of plans: plans by id, the current one, and the ids in order."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._documents = plan_documents(database, PLAN, ServingPlan)

    async def current_id(self) -> str:
        """Empty when nothing has been applied yet."""
        with redis_faults():
            return str(await self._database.redis.get(self._key_current) or "")

    async def current(self) -> ServingPlan | None:
        plan_id = await self.current_id()
        return await self.get(plan_id) if plan_id else None

    async def get(self, plan_id: str) -> ServingPlan | None:
        return await self._documents.get(plan_id)

    async def history(self) -> list[str]:
        """Plan ids, the newest first."""
        with redis_faults():
            found = cast("Awaitable[list[str]]", self._database.redis.lrange(self._key_history, 0, -1))
            return [str(plan_id) for plan_id in await found]

    async def set_current(self, plan: ServingPlan, *, replaces: str) -> None:
        """Makes `plan` the desired one if `replaces` still is; FailedPreconditionError otherwise."""
        namespace = self._database.namespace
        keys = [self._key_current, self._key_history, PLAN.key(namespace, plan.plan_id)]
        document = json.dumps(to_plan_document(plan))
        async with self._database.writing():
            with redis_faults():
                swap = self._database.redis.eval(
                    _SWAP, len(keys), *keys, replaces, plan.plan_id, document, str(_HISTORY_LENGTH)
                )
                won = await cast("Awaitable[str]", swap)
        if won != plan.plan_id:
            raise FailedPreconditionError(
                f"Plan {replaces or '(none)'} is no longer the current one: {won or '(none)'} is.",
                hint="Look at the current plan and apply again.",
                field="plan_id",
            )

    @property
    def _key_current(self) -> str:
        return PLAN_CURRENT.key(self._database.namespace)

    @property
    def _key_history(self) -> str:
        return PLAN_HISTORY.key(self._database.namespace)
