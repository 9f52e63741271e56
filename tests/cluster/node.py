"""A node of a cluster whose pods are processes of this machine: a kubelet's part, without containers."""

import base64
import random
import re
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from tests.cluster.control_plane import ControlPlane
from tests.cluster.pod import Pod

_NAME = "here"
_LOOKS_EVERY_S = 0.3
_STATUS = "application/strategic-merge-patch+json"


class Node:
    """Runs the pods that the scheduler binds to it, and tells how they are. Use it as a context."""

    def __init__(self, plane: ControlPlane, directory: Path, *, namespace: str) -> None:
        self.directory = directory
        self.pods: dict[str, Pod] = {}  # by uid
        self._plane = plane
        self._namespace = namespace
        self._network = f"127.{random.randint(2, 250)}.{random.randint(0, 250)}"
        self._addresses: dict[str, str] = {}  # by pod name: one that is replaced under its name keeps its address
        self._told: dict[str, object] = {}
        self._ending: dict[str, threading.Thread] = {}
        self._ended = threading.Event()
        self._kubelet = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Self:
        self._register()
        self._kubelet.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._kubelet.join()
        for pod in self.pods.values():
            pod.kill()

    def secret(self, name: str) -> Mapping[str, str]:
        data = self._get("secrets", name)["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def config_map(self, name: str) -> Mapping[str, str]:
        data: Mapping[str, str] = self._get("configmaps", name)["data"]
        return data

    def resolve(self, text: str) -> str:
        """As the cluster's DNS and kube-proxy would: a Service's name becomes the address of a ready pod of it."""
        for service in self._plane.list(f"/api/v1/namespaces/{self._namespace}/services"):
            name = service["metadata"]["name"]
            pattern = rf"(?:(?<=[@/])|^){re.escape(name)}(?=:)"
            if re.search(pattern, text) and (ready := self.endpoints(name)):
                text = re.sub(pattern, ready[0], text)
        return text

    def endpoints(self, service: str) -> list[str]:
        """The addresses that Kubernetes has for a Service just now."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self._namespace}/endpointslices"
        slices = self._plane.list(f"{path}?labelSelector=kubernetes.io/service-name={service}")
        return [
            address
            for each in slices
            for endpoint in each["endpoints"] or []
            if endpoint["conditions"]["ready"]
            for address in endpoint["addresses"]
        ]

    def named(self, prefix: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.name.startswith(prefix)]

    def _register(self) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _NAME}}
        self._plane.create("/api/v1/nodes", node)
        capacity = {"cpu": "64", "memory": "256Gi", "pods": "200"}
        now = _now()
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        status = {"status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}}
        answer = self._plane.call("PATCH", f"/api/v1/nodes/{_NAME}/status", status, kind=_STATUS)
        assert answer.status_code == 200, answer.text

    def _keep(self) -> None:
        while not self._ended.wait(_LOOKS_EVERY_S):
            bound = self._plane.list(f"/api/v1/namespaces/{self._namespace}/pods?fieldSelector=spec.nodeName={_NAME}")
            for document in bound:
                self._keep_pod(document)
            there = {document["metadata"]["uid"] for document in bound}
            for uid in [uid for uid in self.pods if uid not in there and uid not in self._ending]:
                self.pods.pop(uid).kill()  # deleted by force

    def _keep_pod(self, document: dict[str, Any]) -> None:
        metadata = document["metadata"]
        uid, name = metadata["uid"], metadata["name"]
        if uid not in self.pods:
            if any(pod.name == name for pod in self.pods.values()):
                return  # the one before is still ending
            component = metadata["labels"]["app.kubernetes.io/component"]
            address = self._addresses.setdefault(name, f"{self._network}.{len(self._addresses) % 250 + 1}")
            self.pods[uid] = Pod(name, component, document["spec"], address=address, surroundings=self)
        pod = self.pods[uid]
        if "deletionTimestamp" in metadata:
            if uid not in self._ending:
                pod.is_leaving = True
                self._tell(uid, pod)
                self._ending[uid] = threading.Thread(target=self._end, args=(uid, pod), daemon=True)
                self._ending[uid].start()
            return
        try:
            pod.keep_running()
        except (AssertionError, KeyError):  # a Service or a Secret that it names is not there yet
            return
        self._tell(uid, pod)

    def _end(self, uid: str, pod: Pod) -> None:
        pod.end()
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod.name}"
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self._plane.call("DELETE", path, options)
        self.pods.pop(uid, None)
        self._ending.pop(uid, None)

    def _tell(self, uid: str, pod: Pod) -> None:
        """Writes the pod's status where it has changed."""
        is_ready, code = pod.is_ready(), pod.exit_status
        is_once = pod.container.get("readinessProbe") is None
        phase = "Running" if not is_once or code is None else ("Failed" if code else "Succeeded")
        told = (phase, is_ready, pod.num_starts)
        if self._told.get(uid) == told:
            return
        self._told[uid] = told
        now = _now()
        conditions = [
            {"type": kind, "status": str(is_so), "lastTransitionTime": now}
            for kind, is_so in (
                ("Initialized", True),
                ("PodScheduled", True),
                ("ContainersReady", is_ready),
                ("Ready", is_ready),
            )
        ]
        container = {
            "name": pod.container["name"],
            "image": pod.container["image"],
            "imageID": "",
            "ready": is_ready,
            "started": True,
            "restartCount": max(0, pod.num_starts - 1),
            "state": {"running": {"startedAt": now}}
            if phase == "Running"
            else {"terminated": {"exitCode": code, "finishedAt": now}},
        }
        status = {
            "phase": phase,
            "podIP": pod.address,
            "podIPs": [{"ip": pod.address}],
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": [container],
        }
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod.name}/status"
        self._plane.call("PATCH", path, {"status": status}, kind=_STATUS)

    def _get(self, kind: str, name: str) -> dict[str, Any]:
        answer = self._plane.call("GET", f"/api/v1/namespaces/{self._namespace}/{kind}/{name}")
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
