"""This machine as a node of Kubernetes: containerd with runc, a kubelet and kube-proxy; and CoreDNS for its pods.

It runs in the namespaces of `tests.cluster.apart`: its addresses, rules, mounts and containers end with those.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import httpx

from tests.cluster.apart import DIRECTORY
from tests.cluster.control_plane import SERVICES, ControlPlane
from tests.cluster.processes import Processes

NAME = "here"
HOST = "10.88.0.1"
"""Its address for pods."""
KUBELET_PORT = 10250
_PODS = "10.89.0.0/16"
_DOMAIN = "cluster.local"
_SOCKET = "/run/containerd/containerd.sock"
_PLUGINS = "/usr/lib/cni"  # of Debian's containernetworking-plugins
_PAUSE = "docker.io/library/headway-pause:1"


class Node:
    """Use it as a context. Entering returns when Kubernetes says that the node is ready."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self._plane = plane
        self._directory = directory
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        self._processes = Processes(directory, {"PATH": path, "HOME": str(directory)})

    def __enter__(self) -> Self:
        try:
            self._start_containerd()
            self.load(Path(os.environ["HEADWAY_PAUSE_IMAGE"]))
            self._start_names()
            self._start_kubelet()
            self._processes.wait(self._is_ready, "the node is ready")
            self._start_proxy()  # which waits for the node half a minute at a time
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.__exit__()

    @contextmanager
    def enforcing_policies(self) -> Iterator[None]:
        """Network policies hold meanwhile, a moment after the block begins: kube-router's firewall sees to it."""
        self._processes.spawn(
            "kube-router",
            os.environ["HEADWAY_KUBE_ROUTER"],
            f"--kubeconfig={self._plane.kubeconfig}",
            f"--hostname-override={NAME}",
            f"--service-cluster-ip-range={SERVICES}",
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            "--health-port=0",
        )
        try:
            yield
        finally:
            self._processes.kill("kube-router")
            for chain in ("INPUT", "FORWARD", "OUTPUT"):
                self._processes.run("iptables", "--flush", f"KUBE-ROUTER-{chain}")

    def load(self, archive: Path) -> None:
        """Takes the images of an archive, as `docker save` writes them."""
        result = self._ctr("images", "import", str(archive))
        assert result.returncode == 0, result.stderr

    def first_process(self, container_id: str) -> int:
        """The process that a running container is, as this machine numbers it; an id is as the kubelet tells it."""
        return self.first_processes()[container_id]

    def first_processes(self) -> dict[str, int]:
        """Those of all containers, by their ids."""
        told = self._ctr("tasks", "list").stdout.splitlines()
        return {f"containerd://{name}": int(number) for name, number, *_ in map(str.split, told[1:])}

    def _ctr(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self._processes.run("ctr", f"--address={_SOCKET}", "--namespace=k8s.io", *arguments)

    def _is_ready(self) -> bool:
        answer = self._plane.call("GET", f"/api/v1/nodes/{NAME}")
        conditions = answer.json()["status"].get("conditions", []) if answer.status_code == httpx.codes.OK else []
        return ("Ready", "True") in [(each["type"], each["status"]) for each in conditions]

    def _start_containerd(self) -> None:
        networks = self._directory / "networks"
        networks.mkdir()
        # Pods are reached by routes, so that what they ask of Services passes this machine's rules both ways.
        addresses = {"type": "host-local", "subnet": _PODS, "routes": [{"dst": "0.0.0.0/0"}]}
        network = {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": addresses}]}
        (networks / "pods.conflist").write_text(json.dumps(network))
        (self._directory / "containerd.toml").write_text(
            f"""version = 2
root = "{self._directory}/containerd"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{_PAUSE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{_PLUGINS}"
conf_dir = "{networks}"
"""
        )
        self._processes.spawn("containerd", "containerd", f"--config={self._directory}/containerd.toml")
        self._processes.wait(lambda: self._ctr("version").returncode == 0, "containerd answers")

    def _start_names(self) -> None:
        names = f"kubernetes {_DOMAIN} {{\n kubeconfig {self._plane.kubeconfig} here\n}}"
        (self._directory / "Corefile").write_text(f".:53 {{\nerrors\n{names}\n}}\n")
        self._processes.spawn("coredns", os.environ["HEADWAY_COREDNS"], f"-conf={self._directory}/Corefile")

    def _start_kubelet(self) -> None:
        (self._directory / "resolv.conf").write_text("")
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": HOST,
            "port": KUBELET_PORT,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{Path(os.environ[DIRECTORY]).name}",
            "failCgroupV1": False,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "resolvConf": f"{self._directory}/resolv.conf",
            "clusterDNS": [HOST],
            "clusterDomain": _DOMAIN,
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            # The disk is not the node's own.
            "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"},
            "imageGCHighThresholdPercent": 100,
        }
        (self._directory / "kubelet.json").write_text(json.dumps(config))
        self._processes.spawn(
            "kubelet",
            *(os.environ["HEADWAY_KUBERNETES"], "kubelet"),
            f"--config={self._directory}/kubelet.json",
            f"--kubeconfig={self._plane.kubeconfig}",
            f"--root-dir={self._directory}/kubelet",
            f"--hostname-override={NAME}",
            f"--node-ip={HOST}",
        )

    def _start_proxy(self) -> None:
        self._processes.spawn(
            "kube-proxy",
            *(os.environ["HEADWAY_KUBERNETES"], "kube-proxy"),
            f"--kubeconfig={self._plane.kubeconfig}",
            f"--hostname-override={NAME}",
            "--proxy-mode=iptables",
            f"--cluster-cidr={_PODS}",
            "--oom-score-adj=0",
            # These are the whole machine's.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
        )


@contextmanager
def node() -> Iterator[tuple[ControlPlane, Node]]:
    """Kubernetes whose only node is this machine."""
    directory = Path(os.environ[DIRECTORY])
    _add_interface()
    for part in ("plane", "node"):
        (directory / part).mkdir()
    with ControlPlane(directory / "plane", HOST) as plane, Node(plane, directory / "node") as running:
        yield plane, running


def _add_interface() -> None:
    """A kubelet takes no loopback address for its node's. Services' addresses need a route before rules change them."""
    for command in (
        "link add headway type bridge",
        f"address add {HOST}/24 dev headway",
        "link set headway up",
        "route add default dev headway",
    ):
        subprocess.run(["ip", *command.split()], check=True)
