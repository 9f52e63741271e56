"""A control plane of Kubernetes on this machine: etcd, API server, controllers, scheduler, all under one directory."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from headway.cli.ports import take_port

_TOKEN = "a-token-of-this-test"
_USER = "tests"


class ControlPlane:
    """Runs it. Use it as a context; `kubeconfig` is for other programs, `call` asks the API server."""

    def __init__(self, directory: Path) -> None:
        self.kubeconfig = directory / "kubeconfig"
        self._directory = directory
        self._running: list[subprocess.Popen[bytes]] = []
        self._port = _free_port()
        self._client = httpx.Client(
            base_url=f"https://127.0.0.1:{self._port}",
            headers={"authorization": f"Bearer {_TOKEN}"},
            verify=False,  # the certificate is one that the server has made for itself
            timeout=30,
        )

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        for process in reversed(self._running):
            process.terminate()
        for process in reversed(self._running):
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()

    def call(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> httpx.Response:
        content = None if body is None else json.dumps(body)
        return self._client.request(method, path, content=content, headers={"content-type": kind})

    def list(self, path: str) -> list[dict[str, Any]]:
        answer = self.call("GET", path)
        assert answer.status_code == 200, answer.text
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    def create(self, path: str, body: dict[str, Any]) -> None:
        answer = self.call("POST", path, body)
        assert answer.status_code in (201, 409), answer.text

    def _start(self) -> None:
        clients, peers = _free_port(), _free_port()
        key = self._directory / "service-accounts.pem"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        tokens = self._directory / "tokens.csv"
        tokens.write_text(f'{_TOKEN},{_USER},{_USER},"system:masters"\n')
        self.kubeconfig.write_text(yaml.safe_dump(self._configuration()))
        self._spawn(
            "etcd",
            os.environ["HEADWAY_ETCD"],
            f"--data-dir={self._directory / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{clients}",
            f"--advertise-client-urls=http://127.0.0.1:{clients}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            "--unsafe-no-fsync",
        )
        self._kubernetes(
            "apiserver",
            f"--etcd-servers=http://127.0.0.1:{clients}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self._directory / 'certificates'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.77.0.0/16",
            "--endpoint-reconciler-type=none",
        )
        self._wait(lambda: self.call("GET", "/readyz").status_code == 200)
        self._kubernetes(
            "controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--service-account-private-key-file={key}",
            "--node-monitor-grace-period=1h",
        )
        self._kubernetes("scheduler", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0")

    def _kubernetes(self, part: str, *flags: str) -> None:
        self._spawn(part, os.environ["HEADWAY_KUBERNETES"], part, *flags)

    def _spawn(self, name: str, *command: str) -> None:
        with (self._directory / f"{name}.log").open("wb") as log:
            self._running.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=self._directory))

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 180
        while time.monotonic() < deadline_s:
            with suppress(httpx.HTTPError):
                if is_so():
                    return
            ended = [process.args for process in self._running if process.poll() is not None]
            assert not ended, f"{ended} ended; their logs are in {self._directory}"
            time.sleep(0.3)
        raise AssertionError(f"the API server does not come up; its log is in {self._directory}")

    def _configuration(self) -> dict[str, Any]:
        cluster = {"server": f"https://127.0.0.1:{self._port}", "insecure-skip-tls-verify": True}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": _USER,
            "clusters": [{"name": _USER, "cluster": cluster}],
            "users": [{"name": _USER, "user": {"token": _TOKEN}}],
            "contexts": [{"name": _USER, "context": {"cluster": _USER, "user": _USER}}],
        }


def _free_port() -> int:
    return take_port("127.0.0.1", 0, option="--port")
