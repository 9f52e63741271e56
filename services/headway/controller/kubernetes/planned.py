"""What resources are planned and served with."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from headway.controller.reconcile import Action
from headway.core.cluster import PlanWorker
from headway.core.load_order import LoadOrder
from headway.core.plan.serving import ModelDeployment, ServingPlan


class Planned(Protocol):
    """What is desired and what is there, of which this is a source: the controller's service."""

    @property
    def desired_plan(self) -> ServingPlan | None: ...

    @property
    def retired(self) -> frozenset[str]: ...

    def retire(self, worker_ids: frozenset[str]) -> None: ...

    def present_workers(self) -> list[PlanWorker]: ...

    def serving(self) -> Mapping[str, Collection[LoadOrder]]: ...

    def missing(self, kinds: Collection[str]) -> list[str]: ...

    async def propose(self, models: Sequence[ModelDeployment]) -> ServingPlan: ...

    async def apply(self, plan: ServingPlan, *, dry_run: bool, replaces: str | None = None) -> list[Action]: ...

    async def plan(self, plan_id: str) -> ServingPlan: ...

    async def plan_on(self, workers: Sequence[PlanWorker], *, awake: frozenset[str] = frozenset()) -> ServingPlan: ...
