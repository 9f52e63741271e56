"""A release that Helm has installed on a control plane, whose models are resources.

Kubernetes has its pods, which pretend to run. The commands of their containers run as processes of this machine, with
the token of their account.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx

from tests.cluster.audit import Call, account
from tests.cluster.chart import CHART, VALUES, objects
from tests.cluster.control_plane import ControlPlane
from tests.cluster.release import Release
from tests.cluster.stream import answers

NAMESPACE = "serving"
RESOURCES = f"/apis/serving.headway.dev/v1alpha1/namespaces/{NAMESPACE}/modeldeployments"
CONTROLLER = "headway-controller"
NOT_OURS = {"configmap/kube-root-ca.crt", "serviceaccount/default", "persistentvolumeclaim/models"}
"""What the namespace has before anything is installed."""
_KINDS = "all,pvc,lease,configmap,secret,serviceaccount,role,rolebinding,networkpolicy,pdb,endpointslice"
_RELEASE = ("headway", str(CHART), f"--namespace={NAMESPACE}", f"--values={VALUES['resources']}")
# A namespace that enforces the restricted standard takes no directory of its nodes.
_CLAIM = ("--set=modelStorage.hostPath=null", "--set=modelStorage.existingClaim=models")


class _Started(Protocol):
    """The number of times that a pod's container was started."""

    @property
    def name(self) -> str: ...

    @property
    def num_starts(self) -> int: ...


class Pods(Protocol):
    """The pods of the release, wherever they run."""

    def of(self, component: str) -> Sequence[_Started]: ...

    def endpoints(self) -> list[str]:
        """HTTP addresses that answer."""

    def logs(self) -> str: ...


class Cluster:
    """The release; `models` is the directory that its processes have them in."""

    patience_s = 90.0

    def __init__(self, plane: ControlPlane, release: Pods, models: Path) -> None:
        self.models = models
        self.plane = plane
        self.release = release

    def declare(self, name: str, **spec: Any) -> str:
        """By kubectl. Returns why it is refused, if it is."""
        return self.plane.kubectl("apply", "-f-", given=self.resource(name, **spec)).stderr

    def resource(self, name: str, **spec: Any) -> str:
        """A ModelDeployment, as a file has it; with None a field is left out."""
        fields = {"path": str(self.models / name)} | spec
        return json.dumps(
            {
                "apiVersion": "serving.headway.dev/v1alpha1",
                "kind": "ModelDeployment",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {field: value for field, value in fields.items() if value is not None},
            }
        )

    def delete(self, name: str) -> None:
        assert self.plane.call("DELETE", f"{RESOURCES}/{name}").is_success

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.plane.get(f"{RESOURCES}/{name}").get("status", {})
        return status

    def conditions(self, name: str) -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        found = self.status(name).get("conditions", [])
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + self.patience_s
        while not is_so():
            if time.monotonic() > deadline_s:
                told = self.plane.call("GET", RESOURCES).text
                raise AssertionError(f"{what}: not within {self.patience_s} s\n{told}\n{self.release.logs()}")
            time.sleep(0.2)

    def wait_for(self, name: str, condition: str, status: str = "True") -> None:
        """Until that is so of the resource as it is now."""

        def is_so() -> bool:
            resource = self.plane.get(f"{RESOURCES}/{name}")
            is_told = resource.get("status", {}).get("observedGeneration") == resource["metadata"]["generation"]
            return is_told and self.conditions(name).get(condition, ("", ""))[0] == status

        self.wait(is_so, f"{name} is {condition}={status}")

    def workers(self) -> dict[str, int]:
        """The processes of the cells, and how often each was started."""
        return {pod.name: pod.num_starts for pod in self.release.of("worker")}

    def answers(self, model: str) -> bool:
        return answers(self.release.endpoints(), model)

    def calls(self) -> list[Call]:
        """What the controller has asked the API server so far."""
        return self.plane.audit.calls(account(NAMESPACE, CONTROLLER))


@contextmanager
def installed(models: Path, directory: Path) -> Iterator[Cluster]:
    """Kubernetes with two nodes, and the chart installed on it by Helm."""
    with kubernetes(directory, num_nodes=2) as plane, Release(directory) as release:
        upgrade(plane)
        begin(release, plane, directory / "account")
        yield Cluster(plane, release, models)


@contextmanager
def kubernetes(directory: Path, *, num_nodes: int, **resources: str) -> Iterator[ControlPlane]:
    """Nodes with such resources, and the namespace of the release."""
    (directory / "plane").mkdir()
    with ControlPlane(directory / "plane") as plane:
        for index in range(num_nodes):
            plane.add_node(f"node-{index}", **resources)
        make_namespace(plane, NAMESPACE)
        _add_volumes(plane)
        yield plane


def begin(release: Release, plane: ControlPlane, account: Path, *, components: tuple[str, ...] = ()) -> None:
    """Runs what is installed as processes; only some of it where components are named."""
    release.kubernetes = (plane.address, plane.mount_account(NAMESPACE, CONTROLLER, account))
    run(release, plane, components)
    plane.wait(lambda: plane.call("GET", RESOURCES).status_code == httpx.codes.OK, "the definition is served")


def run(release: Release, plane: ControlPlane, components: tuple[str, ...]) -> None:
    """Runs these of what is installed, or all where none is named."""
    manifest = plane.helm("get", "manifest", "headway", f"--namespace={NAMESPACE}")
    release.apply([each for each in objects(manifest.stdout) if not components or _is_of(each, components)])


def _is_of(document: dict[str, Any], components: tuple[str, ...]) -> bool:
    """Whether processes of these components need it."""
    is_run = document["kind"] in ("Deployment", "StatefulSet")
    return not is_run or document["metadata"]["labels"]["app.kubernetes.io/component"] in components


def upgrade(plane: ControlPlane, *flags: str) -> None:
    """Installs the release, or makes it what the chart and flags say. Returns when its pods are ready."""
    result = plane.helm("upgrade", "--install", *_RELEASE, *_CLAIM, *flags, "--wait", "--timeout=9m")
    assert result.returncode == 0, result.stderr


def objects_left(plane: ControlPlane) -> set[str]:
    """All that the namespace has."""
    return set(plane.kubectl("get", _KINDS, "--namespace", NAMESPACE, "--output=name").stdout.split())


def make_namespace(plane: ControlPlane, name: str) -> None:
    """One that enforces the restricted standard."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    plane.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    plane.wait(lambda: plane.call("GET", account).is_success, "the namespace has its account")


def _add_volumes(plane: ControlPlane) -> None:
    """For the models, and for Redis, which is installed twice."""
    modes = {"accessModes": ["ReadWriteOnce"]}
    for name in ("first", "second", "third"):
        spec = modes | {"capacity": {"storage": "100Gi"}, "hostPath": {"path": "/srv"}}
        plane.create("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})
    plane.create(
        f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims",
        {"metadata": {"name": "models"}, "spec": modes | {"resources": {"requests": {"storage": "1Gi"}}}},
    )
