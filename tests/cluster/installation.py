"""A release that Helm has installed on a real node: its pods are containers, and its clients are beside the node."""

import base64
import json
import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from headway.client import Client
from tests.cluster.apart import DIRECTORY
from tests.cluster.cluster import NAMESPACE, RESOURCES, Cluster, make_namespace, upgrade
from tests.cluster.containers import Container, Containers
from tests.cluster.control_plane import ControlPlane
from tests.cluster.node import NAME, Node

NUM_PODS = {
    **dict.fromkeys(("controller", "gateway", "router"), 2),
    **dict.fromkeys(("kvcache", "planner", "profiler", "redis"), 1),
    "worker-v100": 2,
}
"""Of each component."""
MODELS = Path("/models")  # where pods have them
_USER = 10001  # of every pod of the chart
_MERGE = "application/merge-patch+json"
FLAGS = (
    *(f"--set={service}.replicas=2" for service in ("router", "controller")),
    "--set=gateway.leaveSeconds=5",
    "--set=redis.bundled.storage.keep=true",
)


class Installation(Cluster):
    """The release, whose models are resources."""

    patience_s = 240.0

    def __init__(self, plane: ControlPlane, node: Node) -> None:
        self.pods = Containers(plane, NAMESPACE)
        self.node = node
        super().__init__(plane, self.pods, MODELS)

    @property
    def url(self) -> str:
        """Of the release's Service."""
        [url] = self.pods.endpoints()
        return url

    def redis(self) -> "redis.Redis[str]":
        """Its store, with the password that the release has drawn."""
        password = self._secret("redis-password")
        return redis.Redis(self._address_of("headway-redis"), 6379, password=password, decode_responses=True)

    def client(self) -> Client:
        """Of its Service by gRPC, with the right to ask for the status."""
        return Client(f"{self._address_of('headway')}:9000", api_key=self._secret("auth-token"), timeout_s=60)

    def upgrade(self, *flags: str) -> None:
        upgrade(self.plane, *FLAGS, *flags)

    def members(self, kind: str) -> list[dict[str, Any]]:
        """The leases of processes of a kind."""
        store = self.redis()
        leases = (store.get(key) for key in store.scan_iter(f"headway:member:{kind}:*"))
        return [json.loads(lease) for lease in leases if lease is not None]

    def active_controller(self) -> Container:
        """The one that is at work: those that stand by are no members."""
        [member] = self.members("controller")
        [pod] = [pod for pod in self.pods.of("controller") if pod.name == member["member_id"]]
        return pod

    def wait_until_ready(self) -> None:
        """Until every pod is ready, and none is about to go or to be replaced."""
        self.wait(lambda: self._are_rolled_out() and self.pods.are_ready(), "every pod is ready")

    def left(self, pods: Iterable[Container]) -> list[Container]:
        """Which of these are there still."""
        uids = {pod.uid for pod in self.pods.all()}
        return [pod for pod in pods if pod.uid in uids]

    def delete_by_force(self, pod: Container) -> None:
        arguments = ("delete", "pod", pod.name, f"--namespace={NAMESPACE}", "--force", "--grace-period=0")
        result = self.plane.kubectl(*arguments)
        assert result.returncode == 0, result.stderr

    def evict(self, pod: Container) -> int:
        """The status of the answer: 201, or 429 while a budget forbids it."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name, "namespace": NAMESPACE}}
        return self.plane.call("POST", f"{self.pods.path}/{pod.name}/eviction", body).status_code

    def kill(self, pod: Container) -> None:
        """Its container, by the first process."""
        os.kill(self.node.first_process(pod.container_id), signal.SIGKILL)

    def patch(self, name: str, **spec: Any) -> None:
        """Changes what a model's resource says; None for nothing, which is left to the planner then."""
        assert self.plane.call("PATCH", f"{RESOURCES}/{name}", {"spec": spec}, kind=_MERGE).is_success

    def scale(self, component: str, num: int) -> None:
        """Sets how many pods a Deployment is to have, until the release is made anew."""
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/headway-{component}/scale"
        assert self.plane.call("PATCH", path, {"spec": {"replicas": num}}, kind=_MERGE).is_success

    def roll_back(self) -> None:
        """To the revision before. Returns when its pods are ready."""
        result = self.plane.helm("rollback", "headway", "--namespace", NAMESPACE, "--wait", "--timeout=9m")
        assert result.returncode == 0, result.stderr

    def _are_rolled_out(self) -> bool:
        """Helm does not wait for the end of the last pods that others replace, which stay for minReadySeconds."""
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
        return all(
            each["status"].get("observedGeneration") == each["metadata"]["generation"]
            and each["status"].get("replicas") == each["status"].get("updatedReplicas")
            for each in self.plane.get(path)["items"]
        )

    def _secret(self, key: str) -> str:
        """What the release has drawn."""
        secret = self.plane.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/headway-auth")
        return base64.b64decode(secret["data"][key]).decode()

    def _address_of(self, service: str) -> str:
        address: str = self.plane.get(f"/api/v1/namespaces/{NAMESPACE}/services/{service}")["spec"]["clusterIP"]
        return address


@contextmanager
def installed_on(plane: ControlPlane, node: Node, model: Path, *flags: str) -> Iterator[Installation]:
    """What enters has returned from `helm install --wait`, with these flags besides; no model is declared."""
    make_namespace(plane, NAMESPACE)
    volumes = Path(os.environ[DIRECTORY]) / "volumes"
    shutil.copytree(model, volumes / "models" / model.name)
    for claim in ("models", "headway-redis", "files-headway-redis"):
        (volumes / claim).mkdir(exist_ok=True)
        plane.create("/api/v1/persistentvolumes", _volume(claim, volumes / claim))
    body = {"metadata": {"name": "models"}, "spec": _modes("1Gi")}
    plane.create(f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims", body)
    os.chown(volumes / "models", _USER, _USER)  # who fetches models may write there
    installation = Installation(plane, node)
    installation.upgrade(*flags)
    yield installation


def _volume(claim: str, directory: Path) -> dict[str, Any]:
    """A disk of the node, for that claim."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "100Gi"},
        "local": {"path": str(directory)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        "claimRef": {"namespace": NAMESPACE, "name": claim},
    }
    return {"metadata": {"name": claim}, "spec": spec}


def _modes(size: str) -> dict[str, Any]:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
