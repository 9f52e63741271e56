"""What plans give workers to load, each plan read once: most workers of a fleet were loaded by the same few."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from headway.controller.reconcile import load_orders_of
from headway.core.load_order import LoadOrder
from headway.core.plan.serving import ServingPlan


class Plans(Protocol):
    async def get(self, plan_id: str, /) -> ServingPlan | None: ...


class PlannedOrders:
    """Reads plans for many at once. What it has read it keeps for as long as it lives."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self._read: dict[str, Mapping[str, Sequence[LoadOrder]]] = {}
        self._reading = asyncio.Lock()

    async def of(self, worker_id: str, *, plan_id: str) -> Sequence[LoadOrder]:
        """The orders of a plan for a worker; none where there is no such plan.

        UnavailableError where Redis is away.
        """
        async with self._reading:
            if plan_id not in self._read:
                plan = await self._plans.get(plan_id)
                self._read[plan_id] = {} if plan is None else load_orders_of(plan)
        return self._read[plan_id].get(worker_id, ())
