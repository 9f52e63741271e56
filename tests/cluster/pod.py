"""A pod without containers: the command of its container as a process of this machine.

It has an address of its own (Linux listens on all of 127.0.0.0/8), directories in place of its volumes, and the
variables that the downward API, Secrets and expansion would give it.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import grpc
import httpx
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

_RESTARTS_AFTER_S = 0.5


class Surroundings(Protocol):
    """What a pod is given from outside."""

    directory: Path
    kubernetes: tuple[tuple[str, int], Path] | None

    def secret(self, name: str) -> Mapping[str, str]: ...

    def config_map(self, name: str) -> Mapping[str, str]: ...

    def resolve(self, text: str) -> str:
        """A text with the names of Services in it replaced by addresses."""

    def python(self, image: str) -> str:
        """The program in place of an image's Python."""


class Pod:
    """A pod with one container, which is started again when it ends, a moment later."""

    def __init__(
        self, name: str, component: str, template: dict[str, Any], *, address: str, surroundings: Surroundings
    ) -> None:
        self.name = name
        self.component = component
        self.address = address
        self.num_starts = 0
        self.is_leaving = False
        self.labels: dict[str, str] = template["metadata"]["labels"]
        self._spec: dict[str, Any] = template["spec"]
        self._surroundings = surroundings
        self._directory = surroundings.directory / name
        self._directory.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None
        self._ended_at_s = -1e9

    @property
    def container(self) -> dict[str, Any]:
        container: dict[str, Any]
        [container] = self._spec["containers"]
        return container

    @property
    def ports(self) -> dict[str, int]:
        """By their names."""
        return {port["name"]: port["containerPort"] for port in self.container.get("ports", [])}

    @property
    def exit_status(self) -> int | None:
        """Of a pod that is not to be started again."""
        return None if self.process is None else self.process.poll()

    def keep_running(self) -> None:
        """Starts the container where it does not run."""
        if self._spec.get("restartPolicy") == "Never" and self.num_starts:
            return
        if self.process is not None and self.process.poll() is not None:
            self.process, self._ended_at_s = None, time.monotonic()
        if self.process is None and not self.is_leaving and time.monotonic() - self._ended_at_s > _RESTARTS_AFTER_S:
            command, environment = self._command(), self._environment()
            with (self._directory / "log").open("ab") as log:
                self.process = subprocess.Popen(
                    command, env=environment, stdout=log, stderr=log, start_new_session=True
                )
            self.num_starts += 1

    def is_ready(self) -> bool:
        if self.is_leaving or self.process is None:
            return False
        probe = self.container.get("readinessProbe", {})
        if "httpGet" in probe:
            return self._answers(probe["httpGet"])
        if "grpc" not in probe:
            return self.process.poll() is None
        with grpc.insecure_channel(f"{self.address}:{probe['grpc']['port']}") as channel:
            request = health_pb2.HealthCheckRequest(service=probe["grpc"]["service"])
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=2)
            except grpc.RpcError:
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def _answers(self, request: Mapping[str, Any]) -> bool:
        url = f"http://{self.address}:{self.ports[request['port']]}{request['path']}"
        try:
            return httpx.get(url, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """As a crash of the container: all of its processes are gone at once."""
        if self.process is None:
            return
        for process in _processes_of(self.process.pid):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """None of its processes does anything meanwhile, and none knows of it."""
        assert self.process is not None, "it is running"
        processes = _processes_of(self.process.pid)
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    def end(self) -> None:
        """As a deleted pod ends: it is no endpoint, SIGTERM, and SIGKILL when its time is over."""
        self.is_leaving = True
        if self.process is None or self.process.poll() is not None:
            return
        left = _processes_of(self.process.pid)
        self.process.terminate()
        try:
            self.process.wait(self._spec["terminationGracePeriodSeconds"])
        except subprocess.TimeoutExpired:
            self.kill()
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def metric(self, name: str) -> float:
        """Summed over its processes and labels."""
        ports = [port for port_name, port in self.ports.items() if port_name.startswith("metrics")]
        texts = [httpx.get(f"http://{self.address}:{port}/metrics", timeout=10).text for port in ports]
        told = re.findall(rf"^{name}(?:{{.*}})? (.*)$", "\n".join(texts), re.MULTILINE)
        return sum(map(float, told))

    def listeners(self, port: int) -> list[psutil.Process]:
        """Those of its processes that listen at a port."""
        listening = (each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN)
        pids = {each.pid for each in listening if each.laddr in _names_of(self.address, port)}
        return [psutil.Process(pid) for pid in pids if pid is not None]

    def logs(self) -> str:
        path = self._directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _command(self) -> list[str]:
        words = [*self.container["command"], *self.container.get("args", [])]
        python = self._surroundings.python(self.container["image"])
        program = {"python": [python], "headway": [python, "-m", "headway.cli"]}[words[0]]
        bound = ["--bind", self.address] if self.component == "redis" else []
        return [*program, *map(self._local, words[1:]), *bound]

    def _environment(self) -> dict[str, str]:
        values = {key: os.environ[key] for key in ("PATH", "LANG", "LD_LIBRARY_PATH") if key in os.environ}
        if self._surroundings.kubernetes is not None:
            (host, port), _ = self._surroundings.kubernetes
            values |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}
        for variable in self.container.get("env", []):
            given = variable["value"] if "value" in variable else self._value_from(variable["valueFrom"])
            values[variable["name"]] = self._local(re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], given))
        return values

    def _value_from(self, source: Mapping[str, Any]) -> str:
        if "fieldRef" in source:
            return {"metadata.name": self.name, "status.podIP": self.address}[source["fieldRef"]["fieldPath"]]
        reference = source["secretKeyRef"]
        return self._surroundings.secret(reference["name"])[reference["key"]]

    def _local(self, text: str) -> str:
        """Paths in volumes become directories of this machine, addresses those that the pod has."""
        for mount in sorted(self.container.get("volumeMounts", []), key=lambda mount: -len(mount["mountPath"])):
            path = mount["mountPath"]
            if text == path or text.startswith(f"{path}/"):
                return str(self._volume(mount["name"])) + text.removeprefix(path)
        text = self._surroundings.resolve(text)
        return self.address if text == "0.0.0.0" else text

    def _volume(self, name: str) -> Path:
        [volume] = [volume for volume in self._spec["volumes"] if volume["name"] == name]
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        if "projected" in volume:
            assert self._surroundings.kubernetes is not None
            return self._surroundings.kubernetes[1]
        path = self._directory / name
        if "persistentVolumeClaim" in volume:
            path = self._surroundings.directory / "claims" / volume["persistentVolumeClaim"]["claimName"]
        path.mkdir(parents=True, exist_ok=True)
        if "secret" in volume:
            for key, text in self._surroundings.secret(volume["secret"]["secretName"]).items():
                if not (path / key).exists():  # the process may just read it
                    (path / key).write_text(text)
        if "configMap" in volume:
            for key, text in self._surroundings.config_map(volume["configMap"]["name"]).items():
                (path / key).write_text(re.sub(r"(path: )(/\S+)", lambda found: found[1] + self._local(found[2]), text))
        return path


def _names_of(address: str, port: int) -> tuple[tuple[str, int], ...]:
    """An IPv4 address, also as sockets of both versions call it."""
    return (address, port), (f"::ffff:{address}", port)


def _processes_of(pid: int) -> list[psutil.Process]:
    """A container's processes: they end with its first one."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
