"""A service that plans and applies as it is told, and an API server that keeps what it is told."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headway.controller.kubernetes.api import ResourceKind
from headway.core.cluster import Hardware, PlanWorker
from headway.core.errors import FailedPreconditionError, UnavailableError
from headway.core.load_order import LoadOrder
from headway.core.plan.serving import ModelDeployment, ServingPlan

EMPTY = ServingPlan(plan_id="", created_at_s=0.0, models=(), workers=(), assignments=())
HARDWARE = Hardware(device="cpu", name="Test CPU", num_threads=1, memory_bytes=2**33)


class Service:
    """Plans for models as long as their lengths together are 100 tokens or less, under ids that count up.

    Attributes:
        is_tight: whether it needs all of its workers.
    """

    def __init__(self) -> None:
        self.desired_plan: ServingPlan | None = None
        self.is_away = False
        self.workers = ["worker-0"]
        self.retired: frozenset[str] = frozenset()
        self.is_tight = False
        self.works: dict[str, tuple[LoadOrder, ...]] = {}
        self._num_plans = 0

    def present_workers(self) -> list[PlanWorker]:
        there = (worker_id for worker_id in self.workers if worker_id not in self.retired)
        return [PlanWorker(worker_id=worker_id, hardware=HARDWARE) for worker_id in there]

    def retire(self, worker_ids: frozenset[str]) -> None:
        self.retired = worker_ids

    async def check_without(self, worker_ids: Collection[str]) -> None:
        if self.is_tight:
            raise FailedPreconditionError("no room", hint="Add a cell.")

    def serving(self) -> Mapping[str, Collection[LoadOrder]]:
        return {worker_id: self.works.get(worker_id, ()) for worker_id in self.workers}

    def missing(self, kinds: Collection[str]) -> list[str]:
        return []

    async def propose(self, models: Sequence[ModelDeployment]) -> ServingPlan:
        if self.is_away:
            raise UnavailableError("away")
        if sum(model.max_model_len or 0 for model in models) > 100:
            raise FailedPreconditionError("too long")
        self._num_plans += 1
        return replace(
            EMPTY, plan_id=f"plan-{self._num_plans}", models=tuple(models), workers=tuple(self.present_workers())
        )

    async def apply(self, plan: ServingPlan, *, dry_run: bool, replaces: str | None = None) -> list[str]:
        if not dry_run:
            assert replaces in (None, "" if self.desired_plan is None else self.desired_plan.plan_id)
            self.desired_plan = plan
        return [f"load {model.name}" for model in plan.models]


class Api:
    """Attributes:
    objects: by kind and name, as they were applied.
    events: of which resource, with which reason.
    """

    def __init__(self) -> None:
        self.namespace = "serving"
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.statuses: dict[str, dict[str, Any]] = {}
        self.events: list[tuple[str, str]] = []
        self.deleted: list[str] = []

    async def apply(self, kind: ResourceKind, name: str, fields: Mapping[str, Any]) -> None:
        self.objects[kind.kind, name] = dict(fields)

    async def apply_status(self, kind: ResourceKind, name: str, status: Mapping[str, Any]) -> None:
        self.statuses[name] = dict(status)

    async def delete(self, kind: ResourceKind, name: str, *, uid: str) -> None:
        self.deleted.append(name)

    async def create_event(self, event: Mapping[str, Any]) -> None:
        self.events.append((event["involvedObject"]["name"], event["reason"]))
