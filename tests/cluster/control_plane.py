"""The part of Kubernetes' API server that serves custom resources, on this machine, with etcd under it."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx

from headway.cli.ports import take_port

_READY = "/readyz?exclude=informer-sync"  # of Services, which another server would have
_NOWHERE = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "nowhere",
    "clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}],
    "users": [{"name": "nobody", "user": {}}],
}


class ControlPlane:
    """Runs both; use it as a context. Accounts, roles and events are no custom resources: there are none here.

    Attributes:
        address: host and port of the API server, as pods are told them.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._etcd_port, self._etcd_peers_port, port = (take_port("127.0.0.1", 0, option="--port") for _ in range(3))
        self.address = ("127.0.0.1", port)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._client = httpx.Client(
            base_url=f"https://127.0.0.1:{port}",
            verify=False,  # the certificate is not there yet
            timeout=30,
        )

    def __enter__(self) -> Self:
        try:
            self._spawn(
                os.environ["HEADWAY_ETCD"],
                f"--data-dir={self._directory / 'etcd'}",
                f"--listen-client-urls=http://127.0.0.1:{self._etcd_port}",
                f"--advertise-client-urls=http://127.0.0.1:{self._etcd_port}",
                f"--listen-peer-urls=http://127.0.0.1:{self._etcd_peers_port}",
                "--unsafe-no-fsync",
            )
            self.start_api_server()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        for process in reversed(self._running.values()):
            process.terminate()
        for process in reversed(self._running.values()):
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()

    def start_api_server(self) -> None:
        """Returns when it answers."""
        elsewhere = self._directory / "no-kubernetes"  # whose own objects it would ask another server for
        elsewhere.write_text(json.dumps(_NOWHERE))
        self._spawn(
            os.environ["HEADWAY_RESOURCE_SERVER"],
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.address[1]}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self._directory / 'certificates'}",
            f"--kubeconfig={elsewhere}",
            "--enable-priority-and-fairness=false",
        )
        self._wait(lambda: self.call("GET", _READY).status_code == httpx.codes.OK)

    def kill_api_server(self) -> None:
        process = self._running.pop(Path(os.environ["HEADWAY_RESOURCE_SERVER"]).name)
        process.kill()
        process.wait()

    def call(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> httpx.Response:
        content = None if body is None else json.dumps(body)
        return self._client.request(method, path, content=content, headers={"content-type": kind})

    def get(self, path: str) -> dict[str, Any]:
        answer = self.call("GET", path)
        assert answer.status_code == httpx.codes.OK, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        answer = self.call("POST", path, dict(body))
        assert answer.status_code == httpx.codes.CREATED, answer.text

    def service_account(self, namespace: str, directory: Path) -> Path:
        """What a pod has mounted, but for a token that would be worth something."""
        directory.mkdir()
        (directory / "token").write_text("nobody looks at it")
        (directory / "ca.crt").write_text((self._directory / "certificates/apiserver.crt").read_text())
        (directory / "namespace").write_text(namespace)
        return directory

    def _spawn(self, program: str, *flags: str) -> None:
        name = Path(program).name
        with (self._directory / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen([program, *flags], stdout=log, stderr=log, cwd=self._directory)

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 120
        while time.monotonic() < deadline_s:
            with suppress(httpx.HTTPError):
                if is_so():
                    return
            ended = [name for name, process in self._running.items() if process.poll() is not None]
            assert not ended, f"{ended} ended; their logs are in {self._directory}"
            time.sleep(0.2)
        raise AssertionError(f"the API server does not come up; its log is in {self._directory}")
