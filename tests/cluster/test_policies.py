"""The chart's network policies on a real node, where kube-router enforces them: who reaches which ports is found out by
connections from within the network of each pod."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.arrows import COMPONENTS, INNER_PORT, PORTS, STRANGER, Port, may_reach
from tests.cluster.cluster import NAMESPACE, make_namespace
from tests.cluster.containers import Container, Containers, restricted_pod
from tests.cluster.installation import NUM_PODS, Installation
from tests.cluster.load import MODEL, Load
from tests.cluster.node import HOST, KUBELET_PORT
from tests.cluster.reach import listening, reachable_from, run_in

pytestmark = pytest.mark.timeout(1500)

_NODE = {"DNS": f"{HOST}:53", "API server": f"{HOST}:6443", "kubelet": f"{HOST}:{KUBELET_PORT}"}
_LABELS = {"app.kubernetes.io/name": "headway", "app.kubernetes.io/instance": "headway"}
_OTHERS = {
    "clients": ("clients", {"app": "clients"}),
    "monitoring": ("monitoring", {"app": "monitoring"}),
    STRANGER: (STRANGER, _LABELS | {"app.kubernetes.io/component": "controller"}),
    "neighbour": (NAMESPACE, _LABELS | {"app.kubernetes.io/instance": "another", "headway/role": "worker"}),
    "test": (NAMESPACE, _LABELS | {"app.kubernetes.io/component": "test"}),
    "fetch": (NAMESPACE, _LABELS | {"app.kubernetes.io/component": "fetch"}),
}
"""Pods that do nothing: their namespaces, and labels by which they might be taken for what they are not."""


class _Network:
    """The ports that pods of the release listen at, and who reaches them."""

    def __init__(self, served: Installation, others: dict[str, Container]) -> None:
        self._served = served
        pods = {component: served.pods.of(component) for component in COMPONENTS}
        self._callers = {component: found[0] for component, found in pods.items()} | others
        self.callees = {component: found[-1] for component, found in pods.items()}
        self._addresses = {
            _name(port): f"{self.callees[port.component].address}:{port.number}" for port in PORTS
        } | _NODE

    def targets(self, caller: str) -> set[str]:
        """All but the caller's own: of some components there is but one pod, which needs no network for itself."""
        own = f"{self._callers[caller].address}:"
        return {target for target, address in self._addresses.items() if not address.startswith(own)}

    def reached_by(self, caller: str) -> set[str]:
        pid = self._served.node.first_process(self._callers[caller].container_id)
        found = reachable_from(pid, list(self._addresses.values()))
        return {target for target in self.targets(caller) if self._addresses[target] in found}

    def reached(self) -> dict[str, set[str]]:
        """By each caller."""
        with ThreadPoolExecutor() as pool:
            return dict(zip(self._callers, pool.map(self.reached_by, self._callers), strict=True))


def _name(port: Port) -> str:
    return f"{port.component}'s {port.kind} at {port.number}"


@pytest.fixture(scope="module")
def others(installation: Installation) -> Iterator[dict[str, Container]]:
    plane = installation.plane
    for name, (namespace, labels) in _OTHERS.items():
        if namespace != NAMESPACE:
            make_namespace(plane, namespace)
        pod = restricted_pod(name, {"image": "headway-pause:1"}, labels)
        plane.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    namespaces = {namespace for namespace, _ in _OTHERS.values()}
    for namespace in namespaces:
        plane.wait(Containers(plane, namespace).are_ready, "their pods are ready")
    pods = (pod for namespace in namespaces for pod in Containers(plane, namespace).all())
    yield {pod.name: pod for pod in pods if pod.name in _OTHERS}
    for name, (namespace, _) in _OTHERS.items():
        result = plane.kubectl("delete", "pod", name, f"--namespace={namespace}", "--now", "--wait")
        assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def network(installation: Installation, others: dict[str, Container]) -> Iterator[_Network]:
    found = _Network(installation, others)
    worker = installation.node.first_process(found.callees["worker"].container_id)
    with listening(worker, INNER_PORT):
        installation.wait(lambda: found.reached_by(STRANGER) == found.targets(STRANGER), "every port is listened at")
        yield found


@pytest.fixture(scope="module")
def enforced(installation: Installation, network: _Network) -> Iterator[None]:
    with installation.node.enforcing_policies():
        installation.wait(lambda: network.reached_by("planner") != network.targets("planner"), "policies are enforced")
        yield


def test_where_nobody_enforces_policies_every_pod_reaches_every_port(network: _Network) -> None:
    """So what is out of reach later is so by the policies."""
    reached = network.reached()
    assert reached == {caller: network.targets(caller) for caller in reached}


@pytest.mark.usefixtures("enforced")
def test_each_pod_reaches_the_ports_of_those_that_it_calls_and_no_others(network: _Network) -> None:
    reached = network.reached()
    wrong = {caller: found ^ (_expected(caller) & network.targets(caller)) for caller, found in reached.items()}
    assert {caller: targets for caller, targets in wrong.items() if targets} == {}


def _expected(caller: str) -> set[str]:
    if caller in COMPONENTS:
        found = {_name(port) for port in PORTS if may_reach(caller, port)} | {"DNS"}
        # One policy has a component's ingress and egress. What the one allows kube-router takes to be allowed between
        # the pods that the policy is of: a gateway may ask another one what everybody may ask it.
        found |= {_name(port) for port in PORTS if port.component == caller and may_reach(STRANGER, port)}
        return found | {"API server"} if caller == "controller" else found
    if caller == "test":
        return {_name(port) for port in PORTS if port.component == "gateway"} | {"DNS"}
    if caller == "fetch":
        return {"DNS"}
    return {_name(port) for port in PORTS if may_reach(STRANGER, port)} | {*_NODE}


@pytest.mark.usefixtures("enforced")
def test_values_say_who_comes_in_who_scrapes_and_where_models_come_from(
    installation: Installation, network: _Network
) -> None:
    """No pod is replaced for it."""
    before = {pod.uid for pod in installation.pods.all()}
    for_all = {_name(port) for port in PORTS if port.kind in ("front", "metrics")}
    front = {_name(port) for port in PORTS if port.kind == "front"}
    installation.upgrade(*map(_only, ("clients", "monitoring")), "--set-json=modelStorage.fetch.ports=[6443]")
    installation.wait(lambda: network.reached_by(STRANGER) == {*_NODE}, "strangers reach nothing of the release")
    reached = network.reached()
    assert reached["neighbour"] == {*_NODE}
    assert reached["clients"] == front | {*_NODE}
    assert reached["monitoring"] == for_all - front | {*_NODE}
    assert reached["test"] == front | {"DNS"}
    assert reached["fetch"] == {"DNS", "API server"}, "which stands for a hub"
    assert {name: reached[name] - for_all for name in COMPONENTS} == {
        name: (_expected(name) & network.targets(name)) - for_all for name in COMPONENTS
    }
    assert "gateway's front at 9000" in reached["controller"], "which commands in its pod ask"
    installation.upgrade()
    installation.wait(lambda: network.reached_by(STRANGER) == _expected(STRANGER), "strangers reach the gateway again")
    assert {pod.uid for pod in installation.pods.all()} == before


def _only(namespace: str) -> str:
    """The value of that name has pods of the namespace of that name, and nobody else."""
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    return f"--set-json=networkPolicy.{namespace}={json.dumps([peer])}"


@pytest.mark.usefixtures("enforced")
def test_a_release_that_is_made_anew_under_policies_answers_clients_of_other_namespaces(
    installation: Installation, others: dict[str, Container], undisturbed: dict[int, str]
) -> None:
    """All of its pods begin anew, and find each other."""
    assert not installation.declare(MODEL)
    installation.upgrade("--set=logLevel=warning")
    installation.wait_until_ready()
    installation.wait_for(MODEL, "Loaded")
    pid = installation.node.first_process(others["clients"].container_id)
    program = "import json, sys; from tests.cluster import load; print(json.dumps(load.texts(sys.argv[1])))"
    texts = json.loads(run_in(pid, "-c", program, installation.url))
    assert {int(seed): text for seed, text in texts.items()} == undisturbed


@pytest.mark.usefixtures("enforced")
def test_an_upgrade_and_a_rollback_under_policies_refuse_no_client(
    installation: Installation, undisturbed: dict[int, str]
) -> None:
    """Rules for a new pod come some seconds after it is ready; the one that it replaces stays until then."""
    assert not installation.declare(MODEL)
    installation.wait_until_ready()
    installation.wait_for(MODEL, "Loaded")
    before = [pod for pod in installation.pods.all() if pod.component in NUM_PODS]
    with Load(installation.url, undisturbed):
        installation.upgrade("--set=logLevel=error")
        installation.wait_until_ready()
        assert [pod.component for pod in installation.left(before)] == ["redis"]
        installation.roll_back()
        installation.wait_until_ready()
