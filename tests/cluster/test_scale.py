"""Two hundred pretended workers on as many nodes: forty models are placed, and each change costs few calls.

What it took is printed: `pytest -s`. Bounds are of calls, which don't depend on the machine.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
import yaml

from tests.cluster.cluster import NAMESPACE, RESOURCES, Cluster, begin, kubernetes, upgrade
from tests.cluster.control_plane import ControlPlane
from tests.cluster.release import Release

pytestmark = pytest.mark.timeout(900)

_NUM_WORKERS = 200
_NUM_SPARE_NODES = 5
_NUM_MODELS = 40
_NUM_WATCHES = 2
"""Calls for a watch that ends meanwhile and is opened anew."""

_DEVICE = "V100-16"
_COMPONENTS = ("redis", "planner", "controller")


class Fleet(Cluster):
    """A release whose workers pretend."""

    patience_s = 300.0

    def __init__(self, plane: ControlPlane, release: Release, models: Path, client: redis.Redis) -> None:
        super().__init__(plane, release, models)
        self._redis = client

    def num_loads(self) -> int:
        """How often workers have been told to load a model, so far."""
        return sum(": load " in event for event in self._redis.lrange("headway:events", 0, -1))

    def are_loaded(self, num_models: int) -> bool:
        """Whether all that is declared is loaded as it is now."""
        items = self.plane.get(RESOURCES)["items"]
        return len(items) == num_models and all(_is_loaded(each) for each in items)

    def plan_id(self) -> str:
        """Of the desired plan."""
        return str(self._redis.get("headway:plan-current"))

    def nodes(self) -> set[str]:
        """Those that cells run on."""
        pods = self.plane.get(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=headway/role=worker")["items"]
        return {pod["spec"].get("nodeName", "") for pod in pods if pod["status"]["phase"] == "Running"}

    @contextmanager
    def costing(self, what: str, *, most: int) -> Iterator[None]:
        """Prints what is asked of the API server meanwhile. AssertionError where that is more."""
        before, begin_s = Counter(call.right for call in self.calls()), time.monotonic()
        num_loads = self.num_loads()
        yield
        taken_s = time.monotonic() - begin_s
        asked = Counter(call.right for call in self.calls())
        asked.subtract(before)
        told = {f"{verb} {resource}": num for (_, resource, verb), num in asked.items() if num}
        print(f"{what}: {taken_s:.1f} s, {self.num_loads() - num_loads} loads, {told}", flush=True)
        assert asked.total() <= most, told


def _is_loaded(resource: dict[str, object]) -> bool:
    status = resource.get("status", {})
    assert isinstance(status, dict)
    told = {each["type"]: (each["status"], each["observedGeneration"]) for each in status.get("conditions", [])}
    metadata = resource["metadata"]
    assert isinstance(metadata, dict)
    return told.get("Planned") == told.get("Loaded") == ("True", metadata["generation"])


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@pytest.fixture(scope="module")
def fleet(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("fleet")
    pool = {"name": "v100", "cells": _NUM_WORKERS, "workersPerCell": 1, "emulate": _DEVICE, "drainSeconds": 1}
    pool["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    values = directory / "values.yaml"
    values.write_text(yaml.safe_dump({"workers": [pool], "profile": False}))
    gpu = {"nvidia.com/gpu": "1"}
    with (
        kubernetes(directory, num_nodes=_NUM_WORKERS + _NUM_SPARE_NODES, **gpu) as plane,
        Release(directory) as release,
    ):
        upgrade(plane, f"--values={values}")
        begin(release, plane, directory / "account", components=_COMPONENTS)
        [server] = release.of("redis")
        redis_url = f"redis://:{release.secret('headway-auth')['redis-password']}@{server.address}:6379/0"
        client = redis.Redis.from_url(redis_url, decode_responses=True)
        release.wait(lambda: _answers(client), "Redis answers")
        with (directory / "workers.log").open("wb") as log:
            pretending = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.cluster.pretended_workers", f"--kubeconfig={plane.kubeconfig}"),
                    *(f"--namespace={NAMESPACE}", "--release=headway", f"--device={_DEVICE}"),
                    f"--redis-url={redis_url}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            yield Fleet(plane, release, models, client)
        finally:
            pretending.kill()
            pretending.wait()


def _declare_all(fleet: Fleet, **spec: object) -> None:
    """Forty models of one directory, by one command."""
    directory = str(fleet.models / "tiny")
    items = [json.loads(fleet.resource(f"model-{index}", path=directory, **spec)) for index in range(_NUM_MODELS)]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    result = fleet.plane.kubectl("apply", "-f-", given=text)
    assert result.returncode == 0, result.stderr


def test_many_models_are_placed_on_many_workers(fleet: Fleet) -> None:
    with fleet.costing(f"{_NUM_MODELS} models on {_NUM_WORKERS} workers", most=8 * _NUM_MODELS):
        _declare_all(fleet)
        fleet.wait(lambda: fleet.are_loaded(_NUM_MODELS), "all are loaded")
    assert sum(_num_groups(fleet).values()) == _NUM_WORKERS


def test_one_more_gets_groups_of_the_others(fleet: Fleet) -> None:
    before = _num_groups(fleet)
    with fleet.costing("one more model", most=5 * _NUM_MODELS):
        assert not fleet.declare("another", path=str(fleet.models / "tiny"))
        fleet.wait(lambda: fleet.are_loaded(_NUM_MODELS + 1), "all are loaded")
    after = _num_groups(fleet)
    assert sum(before[name] - after[name] for name in before) == after["another"]


def test_of_two_with_one_name_the_older_has_it_and_nothing_moves(fleet: Fleet) -> None:
    plan_id = fleet.plan_id()
    with fleet.costing("a name that is taken", most=2 + _NUM_WATCHES):
        assert not fleet.declare("thief", path=str(fleet.models / "tiny"), servedName="model-0")
        fleet.wait(lambda: fleet.conditions("thief").get("Planned") == ("False", "NameTaken"), "the name is taken")
        fleet.delete("thief")
    assert fleet.plan_id() == plan_id


def test_workers_of_lost_nodes_are_loaded_again_elsewhere(fleet: Fleet) -> None:
    """As an operator says that nodes are out of service: Kubernetes makes their pods anew on others."""
    plan_id, lost = fleet.plan_id(), sorted(fleet.nodes())[:_NUM_SPARE_NODES]
    num_loads = fleet.num_loads()
    with fleet.costing(f"{len(lost)} nodes are lost", most=4 * len(lost) + _NUM_WATCHES):
        taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        result = fleet.plane.kubectl("taint", "node", *lost, taint)
        assert result.returncode == 0, result.stderr
        fleet.wait(lambda: len(fleet.nodes()) == _NUM_WORKERS and not fleet.nodes() & set(lost), "pods are elsewhere")
        fleet.wait(lambda: fleet.num_loads() == num_loads + len(lost), "their workers are loaded")
        fleet.wait(lambda: fleet.are_loaded(_NUM_MODELS + 1), "all are loaded")
    assert fleet.plan_id() == plan_id


def test_the_next_controller_ends_what_the_last_one_began(fleet: Fleet) -> None:
    [controller] = fleet.release.of("controller")
    num_starts, plan_id = controller.num_starts, fleet.plan_id()
    with fleet.costing("all models change, the controller is killed", most=10 * _NUM_MODELS):
        _declare_all(fleet, maxModelLen=64)
        fleet.wait(lambda: fleet.plan_id() != plan_id, "another plan is under way")
        controller.kill()
        fleet.wait(lambda: controller.num_starts > num_starts, "another one runs")
        fleet.wait(lambda: fleet.are_loaded(_NUM_MODELS + 1), "all are loaded")


def test_where_nothing_changes_nothing_is_written(fleet: Fleet) -> None:
    with fleet.costing("five seconds of nothing", most=_NUM_WATCHES):
        time.sleep(5)


def _num_groups(fleet: Fleet) -> dict[str, int]:
    """Groups that serve a model, by its name."""
    items = fleet.plane.get(RESOURCES)["items"]
    return {each["metadata"]["name"]: int(each["status"]["groups"].partition("/")[0]) for each in items}
