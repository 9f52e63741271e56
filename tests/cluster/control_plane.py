"""Kubernetes on this machine: etcd, the API server, the controllers and the scheduler, and kwok in place of nodes.

Roles are enforced, accounts have tokens, what is owned ends with its owner; pods have a node, are ready, run nothing.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headway.cli.ports import take_port
from tests.cluster.audit import TESTS, Audit

HERE = Path(__file__).parent
_ADMIN = "a-token-of-the-tests"
_TOKEN_S = 3600
_QUICKLY = ("--kube-api-qps=500", "--kube-api-burst=1000")


class ControlPlane:
    """Runs all of it; use it as a context.

    Attributes:
        address: host and port of the API server, as pods are told them.
        audit: what accounts of pods have asked it.
        kubeconfig: of one who may do everything, as JSON.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._etcd_port, self._etcd_peers_port, port = (take_port("127.0.0.1", 0, option="--port") for _ in range(3))
        self.address = ("127.0.0.1", port)
        self.audit = Audit(directory / "audit.log")
        self._certificate = directory / "certificates/apiserver.crt"  # the API server makes it
        self.kubeconfig = directory / "kubeconfig"
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(directory)}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._client = httpx.Client(
            base_url=f"https://127.0.0.1:{port}",
            headers={"user-agent": TESTS},
            verify=False,  # the certificate is not there yet
            timeout=30,
        )

    def __enter__(self) -> Self:
        try:
            self._write_secrets()
            self._spawn(
                "etcd",
                os.environ["HEADWAY_ETCD"],
                f"--data-dir={self._directory / 'etcd'}",
                f"--listen-client-urls=http://127.0.0.1:{self._etcd_port}",
                f"--advertise-client-urls=http://127.0.0.1:{self._etcd_port}",
                f"--listen-peer-urls=http://127.0.0.1:{self._etcd_peers_port}",
                "--unsafe-no-fsync",
            )
            self.start_api_server()
            self._start_others()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        for process in reversed(self._running.values()):
            process.kill()
            process.wait()

    def start_api_server(self) -> None:
        """Returns when it answers."""
        self._spawn(
            "kube-apiserver",
            *(os.environ["HEADWAY_KUBERNETES"], "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.address[1]}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self._certificate.parent}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self._directory / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._directory / 'accounts.key'}",
            f"--service-account-signing-key-file={self._directory / 'accounts.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",
            f"--audit-policy-file={HERE / 'audit_policy.yaml'}",
            f"--audit-log-path={self.audit.path}",
        )
        self.wait(lambda: self.call("GET", "/readyz").status_code == httpx.codes.OK, "the API server is ready")

    def kill_api_server(self) -> None:
        process = self._running.pop("kube-apiserver")
        process.kill()
        process.wait()

    def call(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", token: str = _ADMIN
    ) -> httpx.Response:
        """Asks the API server; as one who may do everything where no token says who asks."""
        content = None if body is None else json.dumps(body)
        headers = {"authorization": f"Bearer {token}", "content-type": kind}
        return self._client.request(method, path, content=content, headers=headers)

    def get(self, path: str) -> dict[str, Any]:
        answer = self.call("GET", path)
        assert answer.status_code == httpx.codes.OK, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.call("POST", path, dict(body))
        assert answer.status_code == httpx.codes.CREATED, answer.text
        created: dict[str, Any] = answer.json()
        return created

    def kubectl(self, *arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        """Runs kubectl with something as its standard input."""
        program = (os.environ["HEADWAY_KUBERNETES"], "kubectl", f"--kubeconfig={self.kubeconfig}")
        return self._run(*program, *arguments, given=given)

    def helm(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self._run(os.environ["HEADWAY_HELM"], f"--kubeconfig={self.kubeconfig}", *arguments)

    def token(self, namespace: str, account: str) -> str:
        """As a kubelet gets one for a pod of the account."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_S},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str(self.create(path, request)["status"]["token"])

    def mount_account(self, namespace: str, account: str, directory: Path) -> Path:
        """What a pod of the account has mounted."""
        directory.mkdir()
        (directory / "token").write_text(self.token(namespace, account))
        (directory / "ca.crt").write_text(self._certificate.read_text())
        (directory / "namespace").write_text(namespace)
        return directory

    def add_node(self, name: str, **resources: str) -> None:
        """A node that pretends, with resources for pods."""
        capacity = {"cpu": "64", "memory": "1Ti", "pods": "110", **resources}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": capacity, "allocatable": capacity},
        }
        self.create("/api/v1/nodes", body)

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Until it is so; calls that the server does not answer meanwhile do not count."""
        deadline_s = time.monotonic() + 120
        while time.monotonic() < deadline_s:
            with suppress(httpx.HTTPError):
                if is_so():
                    return
            ended = [name for name, process in self._running.items() if process.poll() is not None]
            assert not ended, f"{ended} ended: {self._end_of_log(ended[0])}"
            time.sleep(0.2)
        raise AssertionError(f"{what}: not within 120 s; logs are in {self._directory}")

    def _write_secrets(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        (self._directory / "accounts.key").write_bytes(key)
        (self._directory / "tokens.csv").write_text(f'{_ADMIN},admin,1,"system:masters"\n')
        cluster = {"server": f"https://127.0.0.1:{self.address[1]}", "certificate-authority": str(self._certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": cluster}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
            "users": [{"name": "admin", "user": {"token": _ADMIN}}],
        }
        self.kubeconfig.write_text(json.dumps(config))
        self.kubeconfig.chmod(0o600)  # Helm asks for that

    def _start_others(self) -> None:
        kubernetes = os.environ["HEADWAY_KUBERNETES"]
        asked = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0", *_QUICKLY)
        self._spawn(
            "kube-controller-manager",
            *(kubernetes, "kube-controller-manager", *asked),
            f"--service-account-private-key-file={self._directory / 'accounts.key'}",
            f"--root-ca-file={self._certificate}",
        )
        self._spawn("kube-scheduler", kubernetes, "kube-scheduler", *asked)
        self._spawn(
            "kwok",
            os.environ["HEADWAY_KWOK"],
            f"--kubeconfig={self.kubeconfig}",
            f"--config={HERE / 'stages.yaml'}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
            "--cidr=10.64.0.1/16",
        )

    def _run(self, *command: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, input=given, env=self._environment, capture_output=True, text=True, check=False, timeout=240
        )

    def _spawn(self, name: str, *command: str) -> None:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._directory, env=self._environment
            )

    def _end_of_log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")[-2000:]
