"""A service that plans and applies as it is told, and an API server that keeps what it is told."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headway.controller.kubernetes.api import ResourceKind
from headway.controller.kubernetes.cell_pod import CellTemplate
from headway.controller.reconcile import Action, load_orders_of, reconcile
from headway.core.cluster import Hardware, PlanWorker
from headway.core.errors import FailedPreconditionError, HeadwayError, NotFoundError, UnavailableError
from headway.core.latency import LatencyModel
from headway.core.load_order import LoadOrder
from headway.core.plan.serving import Assignment, ModelDeployment, Prediction, ServingPlan

EMPTY = ServingPlan(plan_id="", created_at_s=0.0, models=(), workers=(), assignments=())
HARDWARE = Hardware(device="cpu", name="Test CPU", num_threads=1, memory_bytes=2**33)
TEMPLATE = CellTemplate(
    emulated_image="headway:1",
    pod={
        "metadata": {"labels": {"app": "headway"}},
        "spec": {"containers": [{"name": "cell", "image": "headway-worker:1", "args": ["--port", "9000"]}]},
    },
)
_LATENCY = LatencyModel(
    base_s=1e-3, per_prefill_token_s=1e-4, per_prefill_pair_s=0.0, per_decode_s=1e-4, per_context_token_s=0.0
)
_PREDICTION = Prediction(ttft_s=0.1, tpot_s=0.01, tpot_loaded_s=0.02, output_tokens_per_s=100.0, latency=_LATENCY)


def _assignment(model: ModelDeployment) -> Assignment:
    """A group of its own, with a block for each token of its length."""
    return Assignment(
        group_id=f"group-of-{model.name}",
        worker_id=f"worker-of-{model.name}",
        model=model.name,
        weight_bytes=1,
        kv_cache_bytes=1,
        reserved_bytes=0,
        num_blocks=model.max_model_len or 1,
        block_size=1,
        max_num_seqs=1,
        max_num_batched_tokens=16,
        max_model_len=model.max_model_len or 1,
        enable_prefix_cache=True,
        prediction=_PREDICTION,
    )


class Service:
    """Plans for models as long as their lengths together are 100 tokens or less, under ids that count up.

    Attributes:
        is_tight: whether it needs all of its workers.
        plan_like: makes the plan on other workers.
    """

    def __init__(self) -> None:
        self.desired_plan: ServingPlan | None = None
        self.is_away = False
        self.workers = ["worker-0"]
        self.num_reads: Counter[str] = Counter()
        self.retired: frozenset[str] = frozenset()
        self.is_tight = False
        self.plan_like: Callable[[Sequence[PlanWorker]], ServingPlan] = lambda workers: EMPTY
        self.works: dict[str, tuple[LoadOrder, ...]] = {}
        self._num_plans = 0
        self._plans: dict[str, ServingPlan] = {}

    def present_workers(self) -> list[PlanWorker]:
        there = (worker_id for worker_id in self.workers if worker_id not in self.retired)
        return [PlanWorker(worker_id=worker_id, hardware=HARDWARE) for worker_id in there]

    def retire(self, worker_ids: frozenset[str]) -> None:
        self.retired = worker_ids

    async def plan_on(self, workers: Sequence[PlanWorker], *, awake: frozenset[str] = frozenset()) -> ServingPlan:
        if self.is_tight:
            raise FailedPreconditionError("no room", hint="Add a cell.")
        return self.plan_like(workers)

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
        plan = replace(
            EMPTY,
            plan_id=f"plan-{self._num_plans}",
            models=tuple(models),
            workers=tuple(self.present_workers()),
            assignments=tuple(map(_assignment, models)),
        )
        self._plans[plan.plan_id] = plan
        return plan

    async def plan(self, plan_id: str) -> ServingPlan:
        self.num_reads[plan_id] += 1
        if plan_id not in self._plans:
            raise NotFoundError(plan_id)
        return self._plans[plan_id]

    async def apply(self, plan: ServingPlan, *, dry_run: bool, replaces: str | None = None) -> list[Action]:
        wanted = load_orders_of(plan)
        serving = dict.fromkeys(wanted, ()) | load_orders_of(self.desired_plan or EMPTY)
        if not dry_run:
            if replaces not in (None, "" if self.desired_plan is None else self.desired_plan.plan_id):
                raise FailedPreconditionError(f"Plan {replaces} is no longer the current one.")
            self.desired_plan = plan
        return reconcile(wanted, serving=serving)


class Api:
    """Attributes:
    objects: by kind and name, as they were applied.
    events: of which resource, with which reason.
    num_writes: how often it was told something of each resource.
    refusal: of all that is applied; None where nothing is refused.
    """

    def __init__(self) -> None:
        self.namespace = "serving"
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.statuses: dict[str, dict[str, Any]] = {}
        self.events: list[tuple[str, str]] = []
        self.deleted: list[str] = []
        self.num_writes: Counter[str] = Counter()
        self.refusal: HeadwayError | None = None

    async def apply(self, kind: ResourceKind, name: str, fields: Mapping[str, Any]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.objects[kind.kind, name] = dict(fields)

    async def apply_status(self, kind: ResourceKind, name: str, status: Mapping[str, Any]) -> None:
        self.statuses[name] = dict(status)
        self.num_writes[name] += 1

    async def delete(self, kind: ResourceKind, name: str, *, uid: str) -> None:
        self.deleted.append(name)

    async def create_event(self, event: Mapping[str, Any]) -> None:
        self.events.append((event["involvedObject"]["name"], event["reason"]))
        self.num_writes[event["involvedObject"]["name"]] += 1
