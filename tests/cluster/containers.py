"""The pods of a namespace that run on a real node."""

from dataclasses import dataclass
from typing import Any

from tests.cluster.control_plane import ControlPlane


@dataclass(frozen=True, slots=True)
class Container:
    """A pod with its one container, as Kubernetes told of it last."""

    name: str
    is_ready: bool
    container_id: str
    num_starts: int


class Containers:
    """Asks Kubernetes each time."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self._path = f"/api/v1/namespaces/{namespace}/pods"

    def all(self) -> list[Container]:
        return [_container(pod) for pod in self._plane.get(self._path)["items"]]

    def are_ready(self) -> bool:
        return all(container.is_ready for container in self.all())


def _container(pod: dict[str, Any]) -> Container:
    status = pod["status"]
    states = status.get("containerStatuses", [])
    conditions = [(each["type"], each["status"]) for each in status.get("conditions", [])]
    return Container(
        name=pod["metadata"]["name"],
        is_ready=("Ready", "True") in conditions,
        container_id="".join(state.get("containerID", "") for state in states),
        num_starts=sum(state["restartCount"] + 1 for state in states),
    )
