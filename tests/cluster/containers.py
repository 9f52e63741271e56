"""The pods of a namespace that run on a real node."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.cluster.control_plane import ControlPlane


@dataclass(frozen=True, slots=True)
class Container:
    """A pod with its one container, as Kubernetes told of it last.

    Attributes:
        component: what it is of a release of the chart; empty for others.
        uid: of the pod; another one of the same name has another.
        address: of the pod; empty before it has one.
        started_at: when the container was, in a form that sorts.
    """

    name: str
    component: str
    uid: str
    is_ready: bool
    is_leaving: bool
    container_id: str
    address: str
    num_starts: int
    started_at: str


class Containers:
    """Asks Kubernetes each time."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self._namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def all(self) -> list[Container]:
        return [_container(pod) for pod in self._plane.get(self.path)["items"]]

    def of(self, component: str) -> list[Container]:
        return [each for each in self.all() if each.component.startswith(component)]

    def are_ready(self) -> bool:
        return all(container.is_ready and not container.is_leaving for container in self.all())

    def endpoints(self) -> list[str]:
        """The HTTP address of the release's Service."""
        service = self._plane.get(f"/api/v1/namespaces/{self._namespace}/services/headway")
        return [f"http://{service['spec']['clusterIP']}"]

    def logs(self) -> str:
        """The pods, what happened to them, and the end of what each wrote."""
        here = f"--namespace={self._namespace}"
        told = [self._plane.kubectl(*f"get {what} {here}".split()).stdout for what in ("pods -o wide", "events")]
        for pod in self.all():
            told += [f"== {pod.name}", self._plane.kubectl("logs", pod.name, here, "--tail=25").stdout]
            if pod.num_starts > 1:
                before = self._plane.kubectl("logs", pod.name, here, "--tail=25", "--previous").stdout
                told += [f"== {pod.name}, before it was started again", before]
        return "\n".join(told)


def restricted_pod(name: str, container: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A pod as the chart's are, with one container; labelled as an app of its name where no labels are given."""
    rights = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    security = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    common = {"name": name, "imagePullPolicy": "Never", "securityContext": rights}
    common["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]
    volumes = [{"name": "tmp", "emptyDir": {}}]
    spec = {"containers": [dict(container) | common], "securityContext": security, "volumes": volumes}
    return {"metadata": {"name": name, "labels": dict(labels or {"app": name})}, "spec": spec}


def _container(pod: dict[str, Any]) -> Container:
    metadata, status = pod["metadata"], pod["status"]
    states = status.get("containerStatuses", [])
    conditions = [(each["type"], each["status"]) for each in status.get("conditions", [])]
    return Container(
        name=metadata["name"],
        component=metadata.get("labels", {}).get("app.kubernetes.io/component", ""),
        uid=metadata["uid"],
        is_ready=("Ready", "True") in conditions,
        is_leaving="deletionTimestamp" in metadata,
        container_id="".join(state.get("containerID", "") for state in states),
        address=status.get("podIP", ""),
        num_starts=sum(state["restartCount"] + 1 for state in states),
        started_at="".join(state["state"].get("running", {}).get("startedAt", "") for state in states),
    )
