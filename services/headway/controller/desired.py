"""The desired plan: made once, replaced by people, kept up to date with what was measured."""

import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

from headway.controller.clients.planner import PlannerClient
from headway.controller.profile_import import ProfileImport
from headway.controller.reconcile import load_orders_of
from headway.core.cluster import PlanWorker
from headway.core.errors import ErrorCode, HeadwayError, InvalidArgumentError
from headway.core.plan.placement import PlacementPlan
from headway.core.plan.serving import EngineLimits, ModelDeployment, ServingPlan, plan_id_at
from headway.observe.failpoint import failpoint
from headway.store.documents import Documents
from headway.store.plans import PlanStore

log = logging.getLogger(__name__)

_MAX_VIOLATIONS_SHOWN = 5


class DesiredPlan:
    """The plan that the controller makes true. It never becomes one that the planner does not certify.

    Attributes:
        plan: None until there is one.
        fault: why none can be made; None while all is well or may pass by itself.
    """

    def __init__(
        self,
        store: PlanStore,
        *,
        planner: PlannerClient,
        limits: EngineLimits,
        placements: Documents[PlacementPlan],
        profile_import: ProfileImport | None = None,
    ) -> None:
        """`profile_import` brings profiles that plans need."""
        self.plan: ServingPlan | None = None
        self.fault: HeadwayError | None = None
        self._store = store
        self._planner = planner
        self._limits = limits
        self._placements = placements
        self._profile_import = profile_import
        self._refused: Sequence[PlanWorker] = ()

    async def resume(self) -> None:
        """Takes the plan that an earlier controller was making true; none where it cannot be read."""
        try:
            self.plan = await self._store.current()
        except InvalidArgumentError as error:
            log.warning("the plan that was desired cannot be read, and another one is made: %s", error)

    async def make(self, models: Sequence[ModelDeployment], workers: Sequence[PlanWorker]) -> None:
        """Makes a plan and desires it; where these workers make that impossible, `fault` says why."""
        if self.fault is not None and workers == self._refused:
            return
        try:
            if self._profile_import is not None:
                await self._profile_import.run()
            plan = await self._fitting(models, workers, current=None, asleep=frozenset())
            await self.certify(plan)
        except HeadwayError as error:
            log.warning("no plan yet: %s", error)
            if error.code not in (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED):
                self.fault, self._refused = error, workers
            return
        await self.set(plan)
        self.fault = None

    async def propose(self, models: Sequence[ModelDeployment], workers: Sequence[PlanWorker]) -> ServingPlan:
        """A plan that keeps as much of the desired one as it can, without desiring it. Models that sleep go on
        sleeping, unless they have been changed.

        HeadwayError of the planner where there is none.
        """
        asleep = frozenset[str]() if self.plan is None else self.plan.asleep
        unchanged = {model.name for model in models if self.plan is not None and self.plan.model(model.name) == model}
        return await self._fitting(models, workers, current=self.plan, asleep=asleep & unchanged)

    async def propose_awake(self, names: frozenset[str], workers: Sequence[PlanWorker]) -> ServingPlan:
        """The desired plan with models awake that sleep in it, without desiring it.

        HeadwayError of the planner where there is none.
        """
        assert self.plan is not None, "nothing sleeps without a plan"
        return await self._made(self.plan.models, workers, current=self.plan, asleep=self.plan.asleep - names)

    async def certify(self, plan: ServingPlan) -> None:
        """InvalidArgumentError with what is wrong with a plan."""
        violations = await self._planner.find_violations(plan)
        if violations:
            shown = " ".join(violations[:_MAX_VIOLATIONS_SHOWN])
            raise InvalidArgumentError(
                f"The plan breaks {len(violations)} rules: {shown}", hint="Correct it and apply again.", field="plan"
            )

    async def named(self, plan: ServingPlan) -> ServingPlan:
        """The plan under an id of its own, if it has none or says something new under the id of another."""
        stored = await self._store.get(plan.plan_id) if plan.plan_id else None
        if plan.plan_id and stored in (None, plan):
            return plan
        return replace(plan, plan_id=_new_id(time.time()))

    async def set(self, plan: ServingPlan, *, replaces: str | None = None) -> None:
        """Desires a certified plan; FailedPreconditionError where another one was desired meanwhile.

        Args:
            replaces: the id of the plan that it was made to replace; None for whichever is desired now.
        """
        await self._store.set_current(plan, replaces=await self._store.current_id() if replaces is None else replaces)
        failpoint("controller.plan-kept")
        self.plan = plan
        log.info("the desired plan is %s", plan.plan_id)

    async def refresh(self) -> None:
        """Predicts anew, with profiles that were measured since. Only predictions change, so nothing is reloaded."""
        plan = self.plan
        assert plan is not None, "there is no plan to refresh"
        fresh = await self._plan_again(plan)
        if load_orders_of(fresh) != load_orders_of(plan):
            log.info("with what was measured the planner would plan otherwise; %s stays", plan.plan_id)
        elif self.plan is plan:
            await self.certify(fresh)
            await self.set(fresh)

    async def _plan_again(self, plan: ServingPlan) -> ServingPlan:
        """Plans again as the plan was made: an applied placement is assigned workers again, and stays until another one
        is applied.
        """
        placement = await self._placements.get(plan.placement_id) if plan.placement_id else None
        if placement is None:
            return await self._made(plan.models, plan.workers, current=plan, asleep=plan.asleep)
        return await self._planner.assign_workers(
            placement, plan.models, plan.workers, limits=self._limits, current=plan
        )

    async def _fitting(
        self,
        models: Sequence[ModelDeployment],
        workers: Sequence[PlanWorker],
        *,
        current: ServingPlan | None,
        asleep: frozenset[str],
    ) -> ServingPlan:
        """A plan for models; where there is no room for all of them, those that may sleep do so from the beginning."""
        try:
            return await self._made(models, workers, current=current, asleep=asleep)
        except HeadwayError as error:
            served = set() if current is None else {each.model for each in current.assignments}
            deferred = {model.name for model in models if model.may_sleep and model.name not in served} - asleep
            if error.code in (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED) or not deferred:
                raise
        return await self._made(models, workers, current=current, asleep=asleep | deferred)

    async def _made(
        self,
        models: Sequence[ModelDeployment],
        workers: Sequence[PlanWorker],
        *,
        current: ServingPlan | None,
        asleep: frozenset[str],
    ) -> ServingPlan:
        """A plan for models of which some sleep: the planner hears of the others only."""
        awake = [model for model in models if model.name not in asleep]
        if awake:
            plan = await self._planner.make(awake, workers, limits=self._limits, current=current)
            return replace(plan, models=tuple(models))
        now_s = time.time()
        return ServingPlan(
            plan_id=_new_id(now_s), created_at_s=now_s, models=tuple(models), workers=tuple(workers), assignments=()
        )


def _new_id(now_s: float) -> str:
    return plan_id_at(now_s, nonce=uuid.uuid4().hex[:6])
