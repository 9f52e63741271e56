"""A release without a cluster: pods as a rendering says, and Services as lists of those that are ready."""

import base64
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from tests.cluster.pod import Pod

_LOOKS_EVERY_S = 0.2


class Release:
    """The pods of a rendering. Use it as a context; leaving it ends all of them.

    Args:
        pythons: the programs that run what is in images with certain tags; for others it is this one.

    Attributes:
        kubernetes: host and port of an API server, and a directory with what its service account has mounted.
    """

    def __init__(self, directory: Path, *, pythons: Mapping[str, Path] | None = None) -> None:
        self.directory = directory
        self._pythons = dict(pythons or {})
        self.kubernetes: tuple[tuple[str, int], Path] | None = None
        self.pods: dict[str, Pod] = {}
        self._secrets: dict[str, dict[str, str]] = {}
        self._config_maps: dict[str, dict[str, str]] = {}
        self._services: dict[str, str] = {}
        self._specs: dict[str, dict[str, Any]] = {}
        self._network = f"127.{random.randint(2, 250)}.{random.randint(0, 250)}"
        self._num_started = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._kubelet = threading.Thread(target=self._keep_running, daemon=True)

    def __enter__(self) -> Self:
        self._kubelet.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._kubelet.join()
        for pod in self.pods.values():
            pod.kill()

    def secret(self, name: str) -> Mapping[str, str]:
        return self._secrets[name]

    def config_map(self, name: str) -> Mapping[str, str]:
        return self._config_maps[name]

    def resolve(self, text: str) -> str:
        for name, address in self._services.items():
            text = re.sub(rf"(?<=[@/]){re.escape(name)}(?=:)", address, text)
        return text

    def python(self, image: str) -> str:
        return str(self._pythons.get(image.rpartition(":")[2], sys.executable))

    def apply(self, objects: list[dict[str, Any]]) -> None:
        """Makes pods what the rendering says. Pods whose template is another one are replaced one after the other: of
        a rolling Deployment the new one is ready before the old one ends, else the old one ends first.
        """
        for document in objects:
            name = document["metadata"]["name"]
            if document["kind"] == "Secret" and name not in self._secrets:  # the chart keeps what there is
                decoded = {key: base64.b64decode(value).decode() for key, value in document.get("data", {}).items()}
                self._secrets[name] = decoded | document.get("stringData", {})
            elif document["kind"] == "ConfigMap":
                self._config_maps[name] = document["data"]
        # Redis first: elsewhere its Service has an address before it runs.
        owners = [document for document in objects if document["kind"] in ("Deployment", "StatefulSet")]
        for document in sorted(owners, key=lambda document: "redis" not in document["metadata"]["name"]):
            self._apply(document["metadata"]["name"], document["spec"])

    def of(self, component: str) -> list[Pod]:
        with self._lock:
            return [pod for pod in self.pods.values() if pod.component.startswith(component)]

    def busiest_cell(self) -> Pod:
        """The one with most sequences: streams with one prompt go to where its prefix is."""
        return max(self.of("worker"), key=lambda cell: cell.metric("headway:num_requests_running"))

    def endpoints(self) -> list[str]:
        """The HTTP addresses of the ready gateways."""
        return [f"http://{pod.address}:8000" for pod in self.of("gateway") if pod.is_ready()]

    def wait(self, is_so: Callable[[], bool], what: str, *, timeout_s: float = 240) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not is_so():
            assert time.monotonic() < deadline_s, f"{what}: not within {timeout_s} s\n{self.logs()}"
            time.sleep(_LOOKS_EVERY_S)

    def wait_until_ready(self) -> None:
        self.wait(lambda: all(pod.is_ready() for pod in self.of("")), "every pod is ready")

    def delete(self, pod: Pod) -> None:
        """Ends a pod; another one takes its place: of a StatefulSet one of the same name, when it has ended."""
        if pod.component.startswith(("worker", "redis")):
            self._end(pod)
            self._start(pod.name, pod.component)
        else:
            self._start(f"{pod.name}x", pod.component)
            self._end(pod)

    def logs(self) -> str:
        return "\n".join(f"== {pod.name}\n{pod.logs()[-2000:]}" for pod in self.of(""))

    def _apply(self, owner: str, spec: dict[str, Any]) -> None:
        component = spec["selector"]["matchLabels"]["app.kubernetes.io/component"]
        before = self._specs.get(component)
        self._specs[component] = spec
        if before is None:
            for index in range(spec["replicas"]):
                self._start(f"{owner}-{index}", component)
        elif yaml.safe_dump(before["template"]) != yaml.safe_dump(spec["template"]):
            for pod in self.of(component):
                if spec.get("strategy", {}).get("type") == "RollingUpdate":
                    self._await(self._start(f"{pod.name}x", component))
                    self._end(pod)
                else:
                    self._end(pod)
                    self._await(self._start(pod.name, component))

    def _await(self, pod: Pod) -> None:
        self.wait(pod.is_ready, f"{pod.name} is ready")

    def _end(self, pod: Pod) -> None:
        pod.end()
        with self._lock:
            del self.pods[pod.name]

    def _start(self, name: str, component: str) -> Pod:
        with self._lock:
            self._num_started += 1
            service, address = name.rpartition("-")[0], f"{self._network}.{self._num_started}"
            if component == "redis":
                address = self._services.setdefault(service, address)
            template = self._specs[component]["template"]
            pod = self.pods[name] = Pod(name, component, template, address=address, surroundings=self)
        return pod

    def _keep_running(self) -> None:
        while not self._ended.wait(_LOOKS_EVERY_S):
            for pod in self.of(""):
                pod.keep_running()
