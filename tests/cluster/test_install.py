"""`helm install`, upgrade, rollback and uninstall on a control plane of Kubernetes, whose pods are processes here.

API server, controllers, scheduler and pod security are Kubernetes' own; the node is ours (`node.py`), so neither
containers nor network policies are tested.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checkpoints import make_checkpoint
from tests.cluster.chart import CHART, VALUES
from tests.cluster.control_plane import ControlPlane
from tests.cluster.node import Node
from tests.cluster.stream import Stream, answers

pytestmark = pytest.mark.timeout(600)

_NAMESPACE = "serving"
_KINDS = {
    "/api/v1": ("pods", "services", "configmaps", "secrets", "serviceaccounts", "persistentvolumeclaims"),
    "/apis/apps/v1": ("deployments", "statefulsets", "replicasets"),
    "/apis/policy/v1": ("poddisruptionbudgets",),
    "/apis/networking.k8s.io/v1": ("networkpolicies",),
}


class Cluster:
    """A control plane with one node."""

    def __init__(self, plane: ControlPlane, node: Node, values: Path) -> None:
        self.plane = plane
        self.node = node
        self.values = values

    def helm(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [os.environ["HEADWAY_HELM"], *arguments, "--namespace", _NAMESPACE]
        environment = os.environ | {"KUBECONFIG": str(self.plane.kubeconfig)}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    def succeed(self, *arguments: str) -> str:
        result = self.helm(*arguments)
        assert result.returncode == 0, f"{result.stderr}\n{self._troubles()}"
        return result.stdout

    def urls(self) -> list[str]:
        return [f"http://{address}:8000" for address in self.node.endpoints("headway")]

    def objects(self) -> set[str]:
        """Kind and name of everything in the namespace that somebody made."""
        found = set()
        for path, kinds in _KINDS.items():
            for kind in kinds:
                for each in self.plane.list(f"{path}/namespaces/{_NAMESPACE}/{kind}"):
                    found.add(f"{kind}/{each['metadata']['name']}")
        return found - {"configmaps/kube-root-ca.crt", "serviceaccounts/default"}

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + 240
        while not is_so():
            assert time.monotonic() < deadline_s, f"{what}\n{self._troubles()}"
            time.sleep(0.3)

    def evict(self, pod: str) -> int:
        """Asks for a pod's eviction; returns the HTTP status."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": _NAMESPACE}}
        answer = self.plane.call("POST", f"/api/v1/namespaces/{_NAMESPACE}/pods/{pod}/eviction", body)
        return answer.status_code

    def _troubles(self) -> str:
        events = self.plane.list(f"/api/v1/namespaces/{_NAMESPACE}/events")
        told = "\n".join(f"{event['reason']}: {event['message']}" for event in events if event["type"] != "Normal")
        logs = "\n".join(f"== {pod.name}\n{pod.logs()[-800:]}" for pod in list(self.node.pods.values()))
        return f"{told[-4000:]}\n{logs}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    models = directory / "node" / "claims" / "models"
    for name in ("tiny", "second"):
        make_checkpoint(models / name, "llama")
    values = directory / "values.yaml"
    document = yaml.safe_load(VALUES["emulated"].read_text())
    document["modelStorage"] = {"existingClaim": "models"}
    document["redis"]["bundled"]["storage"]["keep"] = True
    values.write_text(yaml.safe_dump(document))
    with ControlPlane(directory) as plane:
        _prepare(plane)
        with Node(plane, directory / "node", namespace=_NAMESPACE) as node:
            yield Cluster(plane, node, values)


def _prepare(plane: ControlPlane) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    plane.create("/api/v1/namespaces", _object("Namespace", _NAMESPACE, labels=labels))
    for name in ("models", "data"):
        spec = {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "hostPath": {"path": f"/{name}"},
        }
        plane.create("/api/v1/persistentvolumes", _object("PersistentVolume", name, spec=spec))
    claim = {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": ""}
    path = f"/api/v1/namespaces/{_NAMESPACE}/persistentvolumeclaims"
    plane.create(path, _object("PersistentVolumeClaim", "models", spec=claim))


def _object(kind: str, name: str, *, labels: dict[str, str] | None = None, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "labels": labels or {}}, **parts}


def test_from_install_to_uninstall(cluster: Cluster) -> None:
    """One story, for each step goes on from the one before."""
    before = cluster.objects()
    cluster.succeed("install", "headway", str(CHART), "--values", str(cluster.values), "--wait", "--timeout", "8m")
    assert len(cluster.urls()) == 2
    assert answers(cluster.urls())
    undisturbed = Stream(cluster.urls()[0]).text()
    cluster.succeed("test", "headway", "--timeout", "3m")
    installed = cluster.objects()

    stream = Stream(cluster.urls()[0])
    both = '[{"name": "tiny", "path": "/models/tiny"}, {"name": "second", "path": "/models/second"}]'
    cluster.succeed(
        *("upgrade", "headway", str(CHART), "--values", str(cluster.values), "--wait", "--timeout", "8m"),
        *("--set-json", f"models={both}", "--set", "logLevel=warning"),
    )
    assert stream.text() == undisturbed
    cluster.wait(lambda: answers(cluster.urls(), "second"), "the second model is served")

    stream = Stream(cluster.urls()[0])
    cluster.succeed("rollback", "headway", "--wait", "--timeout", "8m")
    assert stream.text() == undisturbed
    cluster.wait(lambda: answers(cluster.urls()), "the first model is served")

    streams = [Stream(cluster.urls()[index % 2]) for index in range(2)]
    cells = sorted(pod.name for pod in cluster.node.named("headway-worker"))
    assert [cluster.evict(cell) for cell in cells] == [201, 429], "one cell at a time may be away"
    assert {stream.text() for stream in streams} == {undisturbed}
    cluster.wait(lambda: sum(pod.is_ready() for pod in cluster.node.named("headway-worker")) == 2, "both are back")

    cluster.succeed("uninstall", "headway", "--wait", "--timeout", "5m")
    cluster.wait(lambda: not cluster.node.pods, "every pod has ended")
    left = cluster.objects() - before
    assert left == {"persistentvolumeclaims/headway-redis"}, "what is annotated to be kept"
    assert left < installed
