"""Placements as plans for the workers that there are, and what applying them changes."""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.controller.changes import changes_to
from headway.controller.clients.planner import PlannerClient
from headway.controller.desired import DesiredPlan
from headway.controller.reconcile import load_orders_of
from headway.controller.worker_pool import WorkerPool
from headway.core.errors import FailedPreconditionError, NotFoundError
from headway.core.plan.placement import PlacementPlan
from headway.core.plan.serving import EngineLimits, ModelDeployment, ServingPlan
from headway.core.plan_change import PlanChange
from headway.store.documents import Documents

LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A placement that is not applied yet, with the plan that it would give.

    Attributes:
        changes: what becomes of all models on all groups, also of those that stay.
        replaces: the id of the plan that was desired when it was made; empty for none.
    """

    plan: ServingPlan
    changes: tuple[PlanChange, ...]
    replaces: str


class Placements:
    """The placements that were applied; it also plans what another one would give."""

    def __init__(
        self,
        stored: Documents[PlacementPlan],
        *,
        planner: PlannerClient,
        desired: DesiredPlan,
        pool: WorkerPool,
        limits: EngineLimits,
    ) -> None:
        self._stored = stored
        self._planner = planner
        self._desired = desired
        self._pool = pool
        self._limits = limits

    async def propose(self, placement: PlacementPlan, models: Sequence[ModelDeployment]) -> Proposal:
        """Plans a placement for the present workers, without applying it.

        Raises:
            FailedPreconditionError: the workers are too few, of another kind, or have too little memory.
            InvalidArgumentError: nobody says how to serve a model, or what came out is not valid.
        """
        workers, current = self._pool.plan_workers(), self._desired.plan
        if not workers:
            raise FailedPreconditionError(
                "There are no workers yet.", hint="`headway status` says what is being waited for.", field="workers"
            )
        plan = await self._planner.assign_workers(placement, models, workers, limits=self._limits, current=current)
        await self._desired.certify(plan)
        changes = changes_to(load_orders_of(plan), serving=self._pool.serving(), memory_bytes=self._pool.memory_bytes())
        return Proposal(plan=plan, changes=changes, replaces="" if current is None else current.plan_id)

    async def keep(self, placement: PlacementPlan) -> None:
        await self._stored.put(placement, placement.plan_id)

    async def get(self, placement_id: str) -> PlacementPlan:
        """Returns a placement by its id, or the one in use by 'latest'; NotFoundError where there is none."""
        plan = self._desired.plan
        name = placement_id if placement_id != LATEST else "" if plan is None else plan.placement_id
        placement = await self._stored.get(name) if name else None
        if placement is None:
            raise NotFoundError(
                f"No placement '{placement_id}' was applied here."
                if placement_id != LATEST
                else "No placement is in use: the planner chose who serves what.",
                hint="Make one with `headway plan serve`, and apply it.",
                field="placement_id",
            )
        return placement
