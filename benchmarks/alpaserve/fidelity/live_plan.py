"""Reads a live stack's plan."""

import asyncio

from headway.client import AsyncClient
from headway.core.errors import DeadlineExceededError
from headway.core.plan.serving import ServingPlan

_PROFILING_LIMIT_S, _POLL_S = 300.0, 0.5


async def profiled_plan(endpoint: str) -> ServingPlan:
    """Waits until the plan's latencies are measured ones. DeadlineExceededError where that takes too long."""
    async with AsyncClient(endpoint) as client, asyncio.timeout(_PROFILING_LIMIT_S):
        try:
            while True:
                plan = (await client.status()).plan
                if plan and all(each.prediction.profile_id for each in plan.assignments):
                    return plan
                await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise DeadlineExceededError("The models were not profiled in time.") from None
