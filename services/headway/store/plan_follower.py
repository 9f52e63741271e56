"""Follows the current plan in Redis."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headway.core.errors import HeadwayError, NotFoundError
from headway.core.plan.serving import ServingPlan
from headway.store.plans import PlanStore

log = logging.getLogger(__name__)

_POLL_EVERY_S = 0.5
_PATIENCE_S = 0.5


class PlanFollower:
    """Hands on every plan that becomes the current one; the last known one stays while Redis is away, or the new one
    cannot be read.

    Attributes:
        fault: why the last known plan is gone by; empty if it is the current one.

    Args:
        take: called with each plan, one after the other.
    """

    def __init__(self, plans: PlanStore, *, take: Callable[[ServingPlan], Awaitable[None]]) -> None:
        self._plans = plans
        self._take = take
        self._plan_id = ""
        self.fault = ""
        self._refreshing = asyncio.Lock()

    async def watch(self) -> None:
        """Keeps up for as long as the process lives."""
        while True:
            try:
                await self.refresh()
            except HeadwayError as error:
                self.fault = error.message
                log.warning("keeping the last known plan: %s", error)
            await asyncio.sleep(_POLL_EVERY_S)

    async def catch_up(self) -> None:
        """Refreshes the plan for somebody who waits: the last known plan is kept where that takes long, or Redis is
        away.
        """
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self.refresh()
        except (HeadwayError, TimeoutError) as error:
            log.debug("going by the last known plan: %s", error)

    async def finds_none(self) -> bool:
        """Whether nothing is planned; while Redis is away that is not known, and so not said."""
        try:
            return not await self._plans.current_id()
        except HeadwayError:
            return False

    async def refresh(self) -> None:
        """Takes in the current plan, if it is another; UnavailableError when Redis is away."""
        async with self._refreshing:
            plan_id = await self._plans.current_id()
            if plan_id != self._plan_id:
                plan = await self._plans.get(plan_id)
                if plan is None:
                    raise NotFoundError(f"Redis has no plan '{plan_id}', which is the current one.")
                await self._take(plan)
                self._plan_id = plan_id
            self.fault = ""
