"""Workers of a fleet that were loaded by one plan have it read once."""

import asyncio
from typing import Any

from headway.controller.planned_orders import PlannedOrders
from headway.controller.reconcile import load_orders_of
from headway.core.plan.serving import ServingPlan


class Plans:
    def __init__(self, *plans: ServingPlan) -> None:
        self.num_reads = 0
        self._plans = {plan.plan_id: plan for plan in plans}

    async def get(self, plan_id: str, /) -> ServingPlan | None:
        self.num_reads += 1
        await asyncio.sleep(0)
        return self._plans.get(plan_id)


async def test_each_plan_is_read_once_for_all_workers(make_plan: Any) -> None:
    plan = make_plan({"worker-0": "a", "worker-1": "b", "worker-2,worker-3": "c"})
    plans = Plans(plan)
    orders = PlannedOrders(plans)
    names = [*load_orders_of(plan), "somebody"]
    found = await asyncio.gather(*(orders.of(name, plan_id=plan.plan_id) for name in names * 20))
    assert dict(zip(names, map(tuple, found), strict=False)) == {**load_orders_of(plan), "somebody": ()}
    assert plans.num_reads == 1
    assert [await orders.of(name, plan_id="gone") for name in names] == [()] * len(names)
    assert plans.num_reads == 2
