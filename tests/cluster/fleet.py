"""A release with two kinds of cells on two hundred nodes, whose workers pretend, and two controllers."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import redis
import yaml

from headway.rpc.interceptors import EPOCH_METADATA_KEY
from headway.store.schema import CONTROLLER_EPOCH, CONTROLLER_LEASE, MEMBER, PLAN_CURRENT
from headway.v1 import worker_pb2, worker_pb2_grpc
from tests.cluster.cluster import NAMESPACE, RESOURCES, Cluster, begin, kubernetes, run, upgrade
from tests.cluster.control_plane import NODE_KIND, ControlPlane
from tests.cluster.pod import Pod
from tests.cluster.release import Release

_RELEASE = "headway"
_READS = ("get", "list", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Cells of a kind, each of which takes a node.

    Attributes:
        workers: of a cell; each has a GPU.
        num_spare: nodes without a cell.
    """

    pool: str
    device: str
    cells: int
    workers: int
    num_spare: int

    @property
    def num_workers(self) -> int:
        return self.cells * self.workers

    @property
    def gpus(self) -> dict[str, str]:
        return {"nvidia.com/gpu": str(self.workers)}

    def values(self) -> dict[str, Any]:
        """The pool, as the chart's values have it."""
        return {
            "name": self.pool,
            "cells": self.cells,
            "workersPerCell": self.workers,
            "emulate": self.device,
            "drainSeconds": 1,
            "resources": {"limits": self.gpus},
            "nodeSelector": {NODE_KIND: self.pool},
        }


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker tells of a load.

    Attributes:
        what: "begun", "loaded" or "refused".
        pid: of the worker's run.
        group: all workers that load it together.
        epoch: of the controller that ordered it.
        at_s: seconds since 1970.
    """

    what: str
    worker: str
    pid: int
    model: str
    max_model_len: int
    group: tuple[str, ...]
    epoch: int
    at_s: float

    @property
    def work(self) -> tuple[str, int, str, int]:
        return self.worker, self.pid, self.model, self.max_model_len


class Fleet(Cluster):
    """The release; what workers tell is in Redis."""

    patience_s = 300.0

    def __init__(self, plane: ControlPlane, release: Release, models: Path, client: redis.Redis) -> None:
        super().__init__(plane, release, models)
        self._processes = release
        self._redis = client
        self._num_told = 0

    def start(self) -> None:
        """Starts what plans, and two controllers."""
        run(self._processes, self.plane, ("planner", "controller"))

    def loads(self, *, what: str = "") -> list[Load]:
        """All that was told since `costing` or `forget` was called last."""
        texts = self._redis.lrange(f"{_RELEASE}:loads", self._num_told, -1)
        told = [Load(**(each | {"group": tuple(each["group"])})) for each in map(json.loads, texts)]
        return [load for load in told if not what or load.what == what]

    def forget(self) -> None:
        """From now on all is told anew."""
        self._num_told = self._redis.llen(f"{_RELEASE}:loads")

    def groups(self) -> dict[str, tuple[str, ...]]:
        """The workers that each worker serves with, itself among them."""
        texts = self._redis.lrange(f"{_RELEASE}:loads", 0, -1)
        return {each["worker"]: tuple(each["group"]) for each in map(json.loads, texts) if each["what"] == "loaded"}

    def are_loaded(self, num_models: int) -> bool:
        """Whether all that is declared is loaded as it is now."""
        items = self.plane.get(RESOURCES)["items"]
        return len(items) == num_models and all(_is_loaded(each) for each in items)

    def num_groups(self) -> dict[str, int]:
        """Groups that serve a model, by its name."""
        items = self.plane.get(RESOURCES)["items"]
        return {each["metadata"]["name"]: int(each["status"]["groups"].partition("/")[0]) for each in items}

    def plan_id(self) -> str:
        """Of the desired plan."""
        return str(self._redis.get(PLAN_CURRENT.key(_RELEASE)))

    def nodes(self) -> dict[str, str]:
        """Those that cells run on, by the cell."""
        pods = self.plane.get(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=headway/role=worker")["items"]
        running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in running}

    def epoch(self) -> int:
        """Of the controller that has the lease, or had it last."""
        return int(str(self._redis.get(CONTROLLER_EPOCH.key(_RELEASE)) or 0))

    def leader(self) -> Pod:
        """The controller that has the lease."""
        run = str(self._redis.get(CONTROLLER_LEASE.key(_RELEASE))).partition(" ")[2]
        pid = int(run.partition(" ")[0])
        [leader] = [pod for pod in self._processes.of("controller") if pod.process and pod.process.pid == pid]
        return leader

    def has_two_controllers(self) -> bool:
        """Whether one is at work and another one stands by."""
        return len([pod for pod in self._processes.of("controller") if pod.is_ready()]) == 2

    def refuse_all(self, *, epoch: int) -> bool:
        """Whether every worker refuses an order of that epoch."""
        members = [json.loads(str(self._redis.get(key))) for key in _worker_keys(self._redis)]
        return bool(members) and all(_refuses(member["endpoint"], epoch) for member in members)

    def num_changes(self) -> int:
        """How often a controller has changed something on the API server, so far; what that refused does not count."""
        return sum(call.verb not in _READS and call.status < 400 for call in self.calls())

    @contextmanager
    def costing(self, what: str, *, most: int) -> Iterator[None]:
        """Prints how long it takes until workers are told and until all is done, what they load, and what is asked of
        the API server meanwhile. AssertionError where that is more.
        """
        before, plan_id, begin_s = Counter(call.right for call in self.calls()), self.plan_id(), time.time()
        self.forget()
        yield
        taken_s = time.time() - begin_s
        asked = Counter(call.right for call in self.calls())
        asked.subtract(before)
        told = {f"{verb} {resource}": num for (_, resource, verb), num in asked.items() if num}
        loads = self.loads()
        first = f", workers are told after {loads[0].at_s - begin_s:.1f} s" if loads else ""
        plan = "another plan" if self.plan_id() != plan_id else "the same plan"
        num_loads = dict(Counter(load.what for load in loads))
        print(f"{what}: {taken_s:.1f} s{first}, {plan}, loads {num_loads}, {told}", flush=True)
        assert asked.total() <= most, told


def _is_loaded(resource: dict[str, object]) -> bool:
    status = resource.get("status", {})
    assert isinstance(status, dict)
    told = {each["type"]: (each["status"], each["observedGeneration"]) for each in status.get("conditions", [])}
    metadata = resource["metadata"]
    assert isinstance(metadata, dict)
    return told.get("Planned") == told.get("Loaded") == ("True", metadata["generation"])


def _refuses(endpoint: str, epoch: int) -> bool:
    with grpc.insecure_channel(endpoint) as channel:
        stub = worker_pb2_grpc.WorkerServiceStub(channel)
        order = worker_pb2.UnloadModelRequest(model="nothing")
        try:
            stub.UnloadModel(order, timeout=10, metadata=((EPOCH_METADATA_KEY, str(epoch)),))
        except grpc.RpcError as error:
            return error.code() is grpc.StatusCode.FAILED_PRECONDITION
    return False


def _worker_keys(client: redis.Redis) -> list[str]:
    return list(map(str, client.keys(MEMBER.key(_RELEASE, "worker", "*"))))


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def stop(pod: Pod) -> None:
    """Its process stands still."""
    assert pod.process is not None
    pod.process.send_signal(signal.SIGSTOP)


def go_on(pod: Pod) -> None:
    assert pod.process is not None
    pod.process.send_signal(signal.SIGCONT)


@contextmanager
def installed_fleet(models: Path, directory: Path, kinds: tuple[Kind, ...]) -> Iterator[Fleet]:
    """The release on nodes of each kind, with all workers, without models. Nobody plans before `Fleet.start`."""
    values = directory / "values.yaml"
    pools = [kind.values() for kind in kinds]
    values.write_text(yaml.safe_dump({"workers": pools, "profile": False, "controller": {"replicas": 2}}))
    with kubernetes(directory, num_nodes=1) as plane, Release(directory) as release:
        for kind in kinds:
            for index in range(kind.cells + kind.num_spare):
                plane.add_node(f"{kind.pool}-{index}", kind=kind.pool, **kind.gpus)
        upgrade(plane, f"--values={values}")
        begin(release, plane, directory / "account", components=("redis",))
        [server] = release.of("redis")
        redis_url = f"redis://:{release.secret('headway-auth')['redis-password']}@{server.address}:6379/0"
        client = redis.Redis.from_url(redis_url, decode_responses=True)
        release.wait(lambda: _answers(client), "Redis answers")
        with (directory / "workers.log").open("wb") as log:
            pretending = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.cluster.pretended_workers", f"--kubeconfig={plane.kubeconfig}"),
                    *(f"--namespace={NAMESPACE}", f"--release={_RELEASE}", f"--redis-url={redis_url}"),
                ],
                stdout=log,
                stderr=log,
            )
        try:
            num_workers = sum(kind.num_workers for kind in kinds)
            release.wait(lambda: len(_worker_keys(client)) == num_workers, "all workers are there")
            yield Fleet(plane, release, models, client)
        finally:
            pretending.kill()
            pretending.wait()
