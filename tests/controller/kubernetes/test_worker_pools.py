"""From declared pools to pods, what may go, and statuses."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headway.controller.kubernetes.pool_scaler import PoolScaler
from headway.controller.kubernetes.worker_pools import WorkerPools
from headway.controller.router_view import ModelSample, RouterView
from headway.core.cluster import PlanWorker
from headway.core.errors import FailedPreconditionError, UnavailableError
from headway.core.load_order import LoadOrder
from headway.core.plan.serving import ServingPlan
from tests.controller.kubernetes.planning import EMPTY, HARDWARE, TEMPLATE, Api, Service

WORK = LoadOrder(
    model="chat",
    directory="",
    dtype="",
    num_blocks=1,
    block_size=16,
    max_num_seqs=1,
    max_num_batched_tokens=16,
    max_model_len=16,
    enable_prefix_cache=True,
)


class Cluster:
    """A pool of cells of two workers each, whose pods run as soon as they are made, and end as soon as deleted."""

    def __init__(self) -> None:
        self.api, self.service = Api(), Service()
        self.service.workers = []
        self.now_s = 0.0
        self.view = RouterView(models={}, reporting=frozenset())
        self.refused: set[str] = set()
        self.scaler = PoolScaler(
            service=self.service, view=self._look, refusals=lambda: self.refused, clock=lambda: self.now_s
        )
        self.pools = WorkerPools(
            self.api,  # type: ignore[arg-type]
            service=self.service,
            template=TEMPLATE,
            scaler=self.scaler,
            is_emulated=True,
        )
        self.trouble: dict[str, Any] = {}
        self.other: dict[str, Any] = {}
        self.away: set[str] = set()
        self.is_router_away = False
        self.model_plan: ServingPlan | None = None
        self._generation = self._judged = self._met = 0

    async def declare(self, **spec: Any) -> None:
        self._generation += 1
        metadata = {"name": "v100", "uid": "u", "generation": self._generation, "resourceVersion": "1"}
        status = getattr(self, "_pool", {}).get("status", {})
        self._pool = {
            "metadata": metadata,
            "spec": {"emulate": "V100-16", "workersPerCell": 2, **spec},
            "status": status,
        }
        await self.step()

    async def step(self) -> None:
        for name in self.api.deleted:
            self.api.objects.pop(("Pod", name), None)
        self.api.deleted.clear()
        pods = {name: self._run(name, made) for (kind, name), made in self.api.objects.items() if kind == "Pod"}
        workers = [f"{name}-{index}" for name in sorted(pods) for index in (0, 1)]
        self.service.workers = [name for name in workers if name not in self.away]
        pools = {"v100": self._pool, "a100": self.other}
        self.pools.pools.objects = {name: pool for name, pool in pools.items() if pool}
        self.pools.pods.objects = pods
        await self.pools._step()

    async def pass_time(self, time_s: float, *, present: int = 0, met_of_ten: int = 10) -> None:
        """Time in which so many requests are there, and one ends each second."""
        for _ in range(int(time_s / 5)):
            self.now_s += 5
            self._judged += 10
            self._met += met_of_ten
            sample = ModelSample(num_met=self._met, num_judged=self._judged, num_present=present)
            self.view = RouterView(models={"chat": sample}, reporting=frozenset())
            await self.scaler.look()
        await self.step()

    async def settle(self) -> None:
        """Until the plan has all workers, and room for ten requests on each cell."""
        for _ in range(6):
            workers = [worker_id for worker_id in self.service.workers if worker_id not in self.service.retired]
            self.service.desired_plan = self._plan(workers)
            self.service.works = dict.fromkeys(workers, (WORK,))
            await self.step()

    def _plan(self, workers: Sequence[str]) -> ServingPlan:
        assert self.model_plan is not None
        assignments = tuple(
            replace(self.model_plan.assignments[0], worker_id=worker_id, max_num_seqs=5) for worker_id in workers
        )
        used = tuple(PlanWorker(worker_id=worker_id, hardware=HARDWARE) for worker_id in workers)
        name = f"plan of {' '.join(workers)}"
        return replace(self.model_plan, plan_id=name, workers=used, assignments=assignments)

    async def _look(self) -> RouterView:
        if self.is_router_away:
            raise UnavailableError("away")
        plan = self.service.desired_plan
        reporting = () if plan is None else ((each.model, each.worker_id) for each in plan.assignments)
        return replace(self.view, reporting=frozenset(reporting))

    def plan_for(self, *workers: str) -> None:
        """Has a plan that uses these workers, and has it loaded."""
        used = tuple(PlanWorker(worker_id=worker_id, hardware=HARDWARE) for worker_id in workers)
        self.service.desired_plan = replace(EMPTY, plan_id=f"plan of {workers}", workers=used)
        self.service.works = dict.fromkeys(workers, (WORK,))

    @property
    def cells(self) -> list[str]:
        gone = set(self.api.deleted)
        return sorted(name for kind, name in self.api.objects if kind == "Pod" and name not in gone)

    def condition(self, kind: str) -> tuple[str, str]:
        [found] = [each for each in self.api.statuses["v100"]["conditions"] if each["type"] == kind]
        return found["status"], found["reason"]

    def _run(self, name: str, made: dict[str, Any]) -> dict[str, Any]:
        status = self.trouble.get(name, {"conditions": [{"type": "Ready", "status": "True"}]})
        return made | {"metadata": made["metadata"] | {"uid": name}, "status": status}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def scaled(cluster: Cluster, make_plan: Callable[..., ServingPlan]) -> Cluster:
    """Of one to four cells; one is there and has been for a minute."""
    cluster.model_plan = make_plan({"worker-0": "chat"})
    cluster.service.plan_like = lambda workers: cluster._plan([worker.worker_id for worker in workers])
    await cluster.declare(scaling={"min": 1, "max": 4})
    await cluster.settle()
    await cluster.pass_time(65)
    return cluster


async def test_a_scaled_pool_grows_for_a_model_that_sleeps_and_found_no_room(scaled: Cluster) -> None:
    assert scaled.model_plan is not None
    [chat] = scaled.model_plan.models
    rare = replace(chat, name="rare", min_replicas=0)
    scaled.model_plan = replace(scaled.model_plan, models=(chat, rare))

    def with_rare(workers: Sequence[PlanWorker]) -> ServingPlan:
        plan = scaled._plan([worker.worker_id for worker in workers])
        *others, last = plan.assignments
        return replace(plan, assignments=(*others, replace(last, model="rare")))

    scaled.service.plan_like = with_rare
    await scaled.settle()
    await scaled.pass_time(65)
    assert scaled.cells == ["v100-0"], "nobody asks for it"
    scaled.refused = {"rare"}
    await scaled.pass_time(65)
    assert scaled.cells == ["v100-0", "v100-1"]


async def test_a_scaled_pool_grows_with_what_is_asked_and_shrinks_when_it_is_over(scaled: Cluster) -> None:
    assert scaled.cells == ["v100-0"]
    assert scaled.condition("Scaling") == ("False", "AtMinimum")
    await scaled.pass_time(65, present=14)
    assert scaled.cells == ["v100-0", "v100-1"]
    await scaled.settle()
    assert scaled.condition("Scaling") == ("False", "Settling")
    await scaled.pass_time(300, present=14)
    assert scaled.cells == ["v100-0", "v100-1"]
    assert scaled.condition("Scaling") == ("False", "DemandMet")
    for _ in range(3):
        await scaled.pass_time(310, present=0)
        await scaled.settle()
    assert scaled.cells == ["v100-0"]
    assert scaled.api.statuses["v100"]["wantedReplicas"] == 1


async def test_missed_objectives_make_it_grow(scaled: Cluster) -> None:
    await scaled.pass_time(65, present=1, met_of_ten=8)
    assert scaled.cells == ["v100-0", "v100-1"]
    told = next(each["message"] for each in scaled.api.statuses["v100"]["conditions"] if each["type"] == "Scaling")
    assert told.startswith("from 1 to 2 cells: chat: ")
    assert told.endswith("of its requests met their SLO")


async def test_an_outage_never_scales_down(scaled: Cluster) -> None:
    await scaled.pass_time(65, present=14)
    await scaled.settle()
    scaled.is_router_away = True
    with pytest.raises(UnavailableError):
        await scaled.pass_time(5)
    scaled.now_s += 3000
    await scaled.step()
    assert scaled.cells == ["v100-0", "v100-1"]
    assert scaled.condition("Scaling")[1] in ("MetricsStale", "MetricsUnknown")


async def test_a_dry_run_only_tells(scaled: Cluster) -> None:
    await scaled.declare(scaling={"min": 1, "max": 4, "dryRun": True})
    await scaled.pass_time(65, present=14)
    assert scaled.cells == ["v100-0"]
    assert scaled.condition("Scaling") == ("False", "DryRun")


async def test_bounds_hold_without_any_metrics(cluster: Cluster) -> None:
    await cluster.declare(scaling={"min": 2, "max": 4})
    assert cluster.cells == ["v100-0", "v100-1"]
    await cluster.step()
    await cluster.declare(scaling={"min": 1, "max": 1})
    await cluster.step()
    assert cluster.cells == ["v100-0"]


async def test_a_pool_gets_its_cells_and_tells_of_them(cluster: Cluster) -> None:
    await cluster.declare(replicas=2)
    assert cluster.cells == ["v100-0", "v100-1"]
    assert cluster.pools.num_workers() == 4
    assert cluster.condition("Scaling") == ("True", "Growing")
    await cluster.step()
    status = cluster.api.statuses["v100"]
    assert (status["replicas"], status["readyReplicas"], status["wantedReplicas"]) == (2, 2, 2)
    assert status["selector"] == "serving.headway.dev/pool=v100"
    assert cluster.condition("Ready") == ("True", "CellsReady")
    assert cluster.condition("Scaling") == ("False", "AsWanted")
    before = dict(cluster.api.objects)
    await cluster.step()
    assert cluster.api.objects == before


async def test_who_drains_nodes_may_take_one_cell_at_a_time_however_many_there_are(cluster: Cluster) -> None:
    def num_staying() -> int:
        budget = cluster.api.objects["PodDisruptionBudget", "v100-cells"]
        assert budget["metadata"]["ownerReferences"][0]["name"] == "v100"
        assert budget["spec"]["selector"] == {"matchLabels": {"serving.headway.dev/pool": "v100"}}
        return int(budget["spec"]["minAvailable"])

    for num_cells, num_that_stay in ((3, 2), (1, 2), (1, 0)):  # those that go are there at first
        await cluster.declare(replicas=num_cells)
        assert num_staying() == num_that_stay


async def test_a_cell_is_drained_by_a_plan_without_it_before_it_goes(cluster: Cluster) -> None:
    await cluster.declare(replicas=2)
    await cluster.step()
    cluster.plan_for("v100-0-0", "v100-1-0")
    await cluster.declare(replicas=1)
    assert cluster.cells == ["v100-0", "v100-1"]
    assert cluster.service.retired == {"v100-1-0", "v100-1-1"}
    assert cluster.condition("Scaling") == ("True", "Draining")
    cluster.plan_for("v100-0-0")
    await cluster.step()
    assert cluster.cells == ["v100-0"]
    await cluster.step()
    assert cluster.pools.num_workers() == 2


async def test_a_cell_that_the_models_need_stays_and_that_is_told(cluster: Cluster) -> None:
    await cluster.declare(replicas=2)
    await cluster.step()
    cluster.plan_for("v100-0-0", "v100-1-0")
    cluster.service.is_tight = True
    await cluster.declare(replicas=1)
    assert cluster.cells == ["v100-0", "v100-1"]
    assert cluster.service.retired == frozenset()
    assert cluster.condition("Scaling") == ("False", "NeededForModels")


async def test_a_cell_that_stayed_while_others_were_away_goes_once_they_are_back(cluster: Cluster) -> None:
    await cluster.declare(replicas=2)
    await cluster.step()
    cluster.plan_for("v100-0-0", "v100-0-1", "v100-1-0")
    cluster.away, cluster.service.is_tight = {"v100-0-0"}, True
    await cluster.declare(replicas=1)
    assert cluster.condition("Scaling") == ("False", "NeededForModels")
    cluster.service.is_tight = False
    await cluster.step()
    assert cluster.condition("Scaling") == ("False", "NeededForModels"), "it was asked, and nothing is otherwise"
    cluster.away = set()
    await cluster.step()
    assert cluster.condition("Scaling") == ("True", "Draining")


async def test_two_pools_that_shrink_do_not_count_on_each_others_cells(cluster: Cluster) -> None:
    other = {"name": "a100", "uid": "u2", "generation": 1, "resourceVersion": "1"}
    cluster.other = {"metadata": other, "spec": {"emulate": "A100-80", "replicas": 1}}
    await cluster.declare(replicas=1)
    await cluster.step()
    cluster.plan_for("a100-0-0", "v100-0-0")

    def on_one(workers: Sequence[PlanWorker]) -> ServingPlan:
        if not workers:
            raise FailedPreconditionError("no room", hint="Add a cell.")
        return EMPTY

    cluster.service.plan_like = on_one
    cluster.other["spec"]["replicas"] = 0
    await cluster.declare(replicas=0)
    for _ in range(3):
        assert cluster.condition("Scaling") == ("False", "NeededForModels")
        assert {name[:6] for name in cluster.service.retired} == {"a100-0"}
        await cluster.step()


async def test_a_pool_that_was_scaled_by_hand_for_a_while_is_scaled_from_there(cluster: Cluster) -> None:
    await cluster.declare(scaling={"min": 1, "max": 4})
    await cluster.step()
    await cluster.declare(replicas=3)
    await cluster.step()
    cluster._pool["status"] = cluster.api.statuses["v100"]
    await cluster.declare(scaling={"min": 1, "max": 4})
    await cluster.step()
    assert cluster.cells == ["v100-0", "v100-1", "v100-2"]


async def test_how_many_workers_there_are_to_be_is_not_known_before_the_pools_are(cluster: Cluster) -> None:
    assert cluster.pools.num_workers() is None
    await cluster.pools._step()
    assert cluster.pools.num_workers() is None
    await cluster.declare(replicas=0)
    assert cluster.pools.num_workers() == 1


async def test_what_a_pool_needs_no_more_goes_when_it_is_deleted(cluster: Cluster) -> None:
    await cluster.declare(replicas=1)
    await cluster.step()
    cluster.plan_for("v100-0-0")
    cluster._pool = {}
    await cluster.step()
    assert cluster.service.retired == {"v100-0-0", "v100-0-1"}
    assert cluster.cells == ["v100-0"], "Kubernetes deletes it with its owner"


async def test_another_image_replaces_cells_one_by_one(cluster: Cluster) -> None:
    await cluster.declare(replicas=2)
    await cluster.step()
    await cluster.declare(replicas=2, image={"repository": "mine", "tag": "2"})
    assert cluster.cells == ["v100-1"]
    await cluster.step()
    assert cluster.cells == ["v100-0", "v100-1"]
    assert cluster.api.objects["Pod", "v100-0"]["spec"]["containers"][0]["image"] == "mine:2"
    cluster.trouble["v100-0"] = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    await cluster.step()
    assert cluster.cells == ["v100-0", "v100-1"], "the other one stays until the new one is ready"
    assert cluster.condition("Degraded") == ("True", "CellsDoNotRun")


async def test_a_pool_that_does_not_fit_the_release_is_left_alone(cluster: Cluster) -> None:
    await cluster.declare(replicas=2, emulate="")
    assert cluster.cells == []
    assert cluster.condition("Degraded") == ("True", "Invalid")


async def test_an_api_server_that_refuses_a_pod_is_quoted(cluster: Cluster) -> None:
    async def refuse(*_: object) -> None:
        raise FailedPreconditionError("exceeded quota: gpus")

    cluster.api.apply = refuse  # type: ignore[method-assign]
    await cluster.declare(replicas=1)
    assert cluster.condition("Degraded") == ("True", "PodsRefused")
