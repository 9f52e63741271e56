"""WorkerPools on Kubernetes: the cells that the controller makes with its own rights, which nodes pretend to run.

What the cells would serve is told by the test: they run no processes.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.controller.kubernetes.api import KubernetesApi
from headway.controller.kubernetes.cell_pod import CellTemplate
from headway.controller.kubernetes.pool_scaler import PoolScaler
from headway.controller.kubernetes.worker_pools import WorkerPools
from headway.controller.router_view import RouterView
from headway.core.cluster import PlanWorker
from headway.core.errors import UnavailableError
from headway.core.load_order import LoadOrder
from headway.core.plan.serving import ModelDeployment, ServingPlan
from tests.cluster.chart import VALUES, objects, render
from tests.cluster.cluster import CONTROLLER, NAMESPACE, kubernetes
from tests.cluster.control_plane import ControlPlane

_POOLS = f"/apis/serving.headway.dev/v1alpha1/namespaces/{NAMESPACE}/workerpools"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_APPLIED = ("CustomResourceDefinition", "ServiceAccount", "Role", "RoleBinding")


class Idle:
    """A service without models."""

    desired_plan: ServingPlan | None = None
    retired: frozenset[str] = frozenset()

    def retire(self, worker_ids: frozenset[str]) -> None:
        self.retired = worker_ids

    def present_workers(self) -> list[PlanWorker]:
        return []

    def serving(self) -> Mapping[str, Collection[LoadOrder]]:
        return {}

    def missing(self, kinds: Collection[str]) -> list[str]:
        return []

    async def propose(self, models: Sequence[ModelDeployment]) -> ServingPlan:
        raise NotImplementedError

    async def plan_on(self, workers: Sequence[PlanWorker]) -> ServingPlan:
        raise NotImplementedError

    async def apply(self, plan: ServingPlan, *, dry_run: bool, replaces: str | None = None) -> list[str]:
        raise NotImplementedError


class Pools:
    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    async def declare(self, name: str, **spec: Any) -> str:
        """By kubectl. Returns why it is refused, if it is."""
        document = {
            "apiVersion": "serving.headway.dev/v1alpha1",
            "kind": "WorkerPool",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        told = await asyncio.to_thread(self.plane.kubectl, "apply", "-f-", given=json.dumps(document))
        return told.stderr

    async def kubectl(self, *arguments: str) -> str:
        told = await asyncio.to_thread(self.plane.kubectl, f"--namespace={NAMESPACE}", *arguments)
        assert told.returncode == 0, told.stderr
        return told.stdout

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.plane.get(f"{_POOLS}/{name}").get("status", {})
        return status

    def cells(self) -> dict[str, str]:
        """Their uids by name, without those that end."""
        items = self.plane.get(_PODS)["items"]
        live = [each["metadata"] for each in items if "deletionTimestamp" not in each["metadata"]]
        return {each["name"]: each["uid"] for each in live}

    async def wait(self, is_so: Callable[[], bool], what: str) -> None:
        for _ in range(300):
            if await asyncio.to_thread(is_so):
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"{what}: not within 60 s\n{self.plane.call('GET', _POOLS).text}")

    async def wait_for(self, name: str, *, cells: int) -> None:
        wanted = dict.fromkeys(("wantedReplicas", "replicas", "readyReplicas"), cells)
        await self.wait(lambda: self.status(name).items() >= wanted.items(), f"{name} has {cells} ready cells")


async def _always() -> bool:
    """The only controller."""
    return True


@pytest.fixture
async def pools(tmp_path: Path) -> AsyncIterator[Pools]:
    rendered = objects(render(VALUES["pools"]))
    [template] = [each["data"]["cell.yaml"] for each in rendered if "cell.yaml" in each.get("data", {})]
    (tmp_path / "cell.yaml").write_text(template)
    with kubernetes(tmp_path, num_nodes=2) as plane:
        applied = yaml.safe_dump_all([each for each in rendered if each["kind"] in _APPLIED])
        told = plane.kubectl("apply", f"--namespace={NAMESPACE}", "-f-", given=applied)
        assert told.returncode == 0, told.stderr
        plane.wait(lambda: plane.call("GET", _POOLS).is_success, "the definition is served")
        account = plane.mount_account(NAMESPACE, CONTROLLER, tmp_path / "account")
        host, port = plane.address
        api, service = KubernetesApi(f"https://{host}:{port}", directory=account, may_act=_always), Idle()
        loop = WorkerPools(
            api,
            service=service,
            template=CellTemplate.read(tmp_path / "cell.yaml"),
            scaler=PoolScaler(service=service, view=_nothing_is_known),
            is_emulated=True,
        )
        running = [
            asyncio.create_task(each) for each in (loop.pools.follow(), loop.pods.follow(), loop.reconcile_forever())
        ]
        try:
            yield Pools(plane)
        finally:
            for task in running:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await api.close()


async def _nothing_is_known() -> RouterView:
    raise UnavailableError("There is no router.")


async def test_a_pool_is_made_scaled_updated_and_deleted(pools: Pools) -> None:
    usual = {"emulate": "V100-16", "workersPerCell": 2}
    assert not await pools.declare("v100", **usual, replicas=2)
    await pools.wait_for("v100", cells=2)
    assert pools.cells().keys() == {"v100-0", "v100-1"}

    await pools.kubectl("scale", "workerpool", "v100", "--replicas=3")
    await pools.wait_for("v100", cells=3)

    before = pools.cells()
    assert not await pools.declare("v100", **usual, replicas=3, drainSeconds=7)
    await pools.wait(lambda: _is_made_anew(pools.cells(), before), "all are made anew, under their names")
    after = pools.cells()

    await pools.kubectl("delete", "pod", "v100-1", "--force")
    await pools.wait(lambda: pools.cells().get("v100-1") not in (None, after["v100-1"]), "a lost cell comes again")
    await pools.kubectl("scale", "workerpool", "v100", "--replicas=1")
    await pools.wait(lambda: len(pools.cells()) == 1, "the others are gone")
    assert (await pools.kubectl("get", "workerpools")).split()[:4] == ["NAME", "WANTED", "CELLS", "READY"]

    await pools.kubectl("delete", "workerpool", "v100")
    await pools.wait(lambda: pools.cells() == {}, "its cells go with it")


async def test_a_drained_node_takes_one_cell_at_a_time_also_of_a_pool_that_scales(pools: Pools) -> None:
    assert not await pools.declare("scaled", emulate="V100-16", scaling={"min": 2, "max": 4})
    await pools.wait_for("scaled", cells=2)
    budget = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/scaled-cells"

    def may_take() -> int:
        return int(pools.plane.get(budget).get("status", {}).get("disruptionsAllowed", 0))

    await pools.wait(lambda: may_take() == 1, "one may go")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "scaled-0", "namespace": NAMESPACE}}
    before = pools.cells()["scaled-0"]
    assert pools.plane.call("POST", f"{_PODS}/scaled-0/eviction", eviction).is_success
    await pools.wait(lambda: pools.cells().get("scaled-0") not in (None, before), "another one comes")


_VLLM = {"engine": "vllm", "image": {"repository": "registry.example/vllm"}}
_SERVER = {"engine": "vllm-server", "engineUrl": "http://a:8000", "engineModel": "chat"}


async def test_wrong_pools_are_refused_and_what_cannot_run_is_told(pools: Pools) -> None:
    for spec, told in (
        ({"replicsa": 1}, "replicsa"),
        ({"replicas": 1, "scaling": {"max": 2}}, "leave one out"),
        ({"scaling": {"min": 3, "max": 2}}, "scaling.min is above scaling.max"),
        ({"emulate": "V100-16", "gpusPerCell": 2}, "give workersPerCell instead"),
        ({"gpusPerCell": 8, "gpusPerWorker": 4}, "gpusPerWorker is for the engine vllm"),
        ({**_VLLM, "gpusPerCell": 6, "gpusPerWorker": 4}, "gpusPerCell is a multiple of it"),
        ({"tolerations": [{"kye": "gpu"}]}, "kye"),
        ({"engineUrl": "http://a:8000"}, "belong to a pool whose engine is vllm-server"),
        ({"engine": "vllm-server", "engineUrl": "http://a:8000"}, "belong to a pool whose engine is vllm-server"),
        ({**_SERVER, "replicas": 2}, "one cell with one worker"),
    ):
        assert told in await pools.declare("wrong", **spec)
    assert not await pools.declare("gpus", emulate="V100-16", nodeSelector={"gpu": "h100"})
    await pools.wait(lambda: "match" in _condition(pools, "gpus", "Degraded")["message"], "no node has it")
    assert not await pools.declare("real", workersPerCell=1)
    await pools.wait(lambda: _condition(pools, "real", "Degraded")["reason"] == "Invalid", "the release emulates")
    assert not await pools.declare("scaled", emulate="V100-16", scaling={"min": 2, "max": 4})
    await pools.wait_for("scaled", cells=2)
    await pools.wait(lambda: _condition(pools, "scaled", "Scaling")["reason"] == "MetricsUnknown", "it waits")


def _is_made_anew(cells: Mapping[str, str], before: Mapping[str, str]) -> bool:
    return cells.keys() == before.keys() and not set(cells.values()) & set(before.values())


def _condition(pools: Pools, name: str, kind: str) -> dict[str, Any]:
    found = [each for each in pools.status(name).get("conditions", []) if each["type"] == kind]
    return found[0] if found else {"reason": "", "message": ""}
