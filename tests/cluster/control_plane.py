"""Kubernetes on this machine: etcd, the API server, the controllers and the scheduler; nodes are kwok's, or real.

Roles are enforced, accounts have tokens, what is owned ends with its owner; pods on kwok's nodes are ready at once, and
run nothing.
"""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headway.cli.ports import take_port
from tests.cluster.audit import TESTS, Audit
from tests.cluster.processes import Processes

HERE = Path(__file__).parent
NODE_KIND = "tests.headway.dev/kind"
"""A label of nodes."""
SERVICES = "10.96.0.0/16"
"""Addresses of Services."""
_LOOPBACK = "127.0.0.1"
_PORT = 6443  # the usual one of an API server, which the chart's network policies count on
_ADMIN = "a-token-of-the-tests"
_TOKEN_S = 3600
# A node that the API server has not heard of for so long is taken for lost, and its pods for not ready: a real one has
# to outlive an API server that is away for a minute.
_LOST_AFTER_S = 120
_QUICKLY = ("--kube-api-qps=500", "--kube-api-burst=1000")


class ControlPlane:
    """Runs all of it; use it as a context.

    Nodes are pretended by kwok where the API server listens on loopback; real ones reach it at another address.

    Attributes:
        address: host and port of the API server, as pods are told them.
        audit: what accounts of pods have asked it.
        kubeconfig: of one who may do everything, as JSON.
    """

    def __init__(self, directory: Path, host: str = _LOOPBACK) -> None:
        self._directory = directory
        self._etcd_port, self._etcd_peers_port, port = (take_port(_LOOPBACK, 0, option="--port") for _ in range(3))
        self.address = (host, port if host == _LOOPBACK else _PORT)
        self.audit = Audit(directory / "audit.log")
        self._certificate = directory / "certificates/apiserver.crt"  # the API server makes it
        self.kubeconfig = directory / "kubeconfig"
        self._processes = Processes(directory, {"PATH": os.environ["PATH"], "HOME": str(directory)})
        self._client = httpx.Client(
            base_url=f"https://{host}:{self.address[1]}",
            headers={"user-agent": TESTS},
            verify=False,  # the certificate is not there yet
            timeout=30,
        )

    def __enter__(self) -> Self:
        try:
            self._write_secrets()
            self._processes.spawn(
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
        self._processes.__exit__()

    def start_api_server(self) -> None:
        """Returns when it answers."""
        self._processes.spawn(
            "kube-apiserver",
            *(os.environ["HEADWAY_KUBERNETES"], "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.address[1]}",
            f"--bind-address={self.address[0]}",
            f"--cert-dir={self._certificate.parent}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self._directory / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._directory / 'accounts.key'}",
            f"--service-account-signing-key-file={self._directory / 'accounts.key'}",
            f"--service-cluster-ip-range={SERVICES}",
            # The Service of the API server has no loopback address.
            f"--endpoint-reconciler-type={'none' if self._is_pretended else 'lease'}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={HERE / 'audit_policy.yaml'}",
            f"--audit-log-path={self.audit.path}",
        )
        self.wait(lambda: self.call("GET", "/readyz").status_code == httpx.codes.OK, "the API server is ready")

    def kill_api_server(self) -> None:
        self._processes.kill("kube-apiserver")

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
        return self._processes.run(*program, *arguments, given=given)

    def helm(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self._processes.run(os.environ["HEADWAY_HELM"], f"--kubeconfig={self.kubeconfig}", *arguments)

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

    def add_node(self, name: str, *, kind: str = "", **resources: str) -> None:
        """A node that pretends, with resources for pods; `kind` is what a pod may select it by."""
        capacity = {"cpu": "64", "memory": "1Ti", "pods": "110", **resources}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, NODE_KIND: kind}},
            "status": {"capacity": capacity, "allocatable": capacity},
        }
        self.create("/api/v1/nodes", body)

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Until it is so; calls that the server does not answer meanwhile do not count."""
        self._processes.wait(is_so, what)

    @property
    def _is_pretended(self) -> bool:
        return self.address[0] == _LOOPBACK

    def _write_secrets(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        (self._directory / "accounts.key").write_bytes(key)
        (self._directory / "tokens.csv").write_text(f'{_ADMIN},admin,1,"system:masters"\n')
        host, port = self.address
        cluster = {"server": f"https://{host}:{port}", "certificate-authority": str(self._certificate)}
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
        self._processes.spawn(
            "kube-controller-manager",
            *(kubernetes, "kube-controller-manager", *asked),
            f"--service-account-private-key-file={self._directory / 'accounts.key'}",
            f"--root-ca-file={self._certificate}",
            *(() if self._is_pretended else (f"--node-monitor-grace-period={_LOST_AFTER_S}s",)),
        )
        self._processes.spawn("kube-scheduler", kubernetes, "kube-scheduler", *asked)
        if self._is_pretended:
            self._processes.spawn(
                "kwok",
                os.environ["HEADWAY_KWOK"],
                f"--kubeconfig={self.kubeconfig}",
                f"--config={HERE / 'stages.yaml'}",
                "--manage-all-nodes=true",
                "--node-lease-duration-seconds=40",
                "--cidr=10.64.0.1/16",
            )
