"""The chart, installed on Kubernetes by Helm: its objects are admitted and run, and its accounts may do little."""

import pytest

from tests.cluster.cluster import CONTROLLER, NAMESPACE, RESOURCES, Cluster, upgrade
from tests.cluster.control_plane import ControlPlane
from tests.cluster.rights import RIGHTS_ON_JOBS, RIGHTS_ON_MODELS

_OURS = f"/api/v1/namespaces/{NAMESPACE}"
_REFUSED = (
    ("GET", f"{_OURS}/secrets"),
    ("GET", f"{_OURS}/secrets/headway-auth"),
    ("GET", f"{_OURS}/configmaps"),
    ("GET", f"{_OURS}/events"),
    ("POST", f"{_OURS}/pods"),
    ("DELETE", f"{_OURS}/pods"),
    ("POST", f"{_OURS}/serviceaccounts/headway-controller/token"),
    ("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings"),
    ("PATCH", f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/headway-worker-v100"),
    ("POST", RESOURCES),
    ("PATCH", f"{RESOURCES}/tiny"),
    ("DELETE", f"{RESOURCES}/tiny"),
    ("GET", RESOURCES.replace(NAMESPACE, "default")),
    ("POST", "/api/v1/namespaces/default/events"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
)


def test_workers_are_waited_for_as_the_notes_say(cluster: Cluster) -> None:
    """Pods are admitted in a namespace that enforces the restricted standard, and their claims are bound."""
    notes = cluster.plane.helm("get", "notes", "headway", "--namespace", NAMESPACE).stdout
    [command] = [line.split() for line in notes.splitlines() if "rollout status" in line]
    assert command[0] == "kubectl"
    waited = cluster.plane.kubectl(*command[1:], "--timeout=60s")
    assert waited.returncode == 0, waited.stderr
    claims = cluster.plane.get(f"{_OURS}/persistentvolumeclaims")["items"]
    assert {claim["status"]["phase"] for claim in claims} == {"Bound"}


def test_the_controller_has_the_rights_of_the_list_and_no_more(cluster: Cluster) -> None:
    default = _rights(cluster.plane, "default")
    assert _rights(cluster.plane, CONTROLLER) - default == RIGHTS_ON_MODELS | RIGHTS_ON_JOBS
    assert _rights(cluster.plane, "headway") == default


@pytest.mark.parametrize(("method", "path"), _REFUSED)
def test_what_the_controller_has_no_business_with_is_refused(cluster: Cluster, method: str, path: str) -> None:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    body = {} if method in ("POST", "PATCH") else None
    token = cluster.plane.token(NAMESPACE, CONTROLLER)
    # Not by the controller's pod, whose own requests are all to be granted.
    assert cluster.plane.call(method, path, body, kind=kind, token=token).status_code == 403


def test_an_upgrade_and_a_rollback_keep_what_processes_tell_each_other(cluster: Cluster) -> None:
    before = cluster.plane.get(f"{_OURS}/secrets/headway-auth")["data"]
    upgrade(cluster.plane, "--set=logLevel=debug")
    assert cluster.plane.get(f"{_OURS}/secrets/headway-auth")["data"] == before
    result = cluster.plane.helm("rollback", "headway", "--namespace", NAMESPACE, "--wait", "--timeout=2m")
    assert result.returncode == 0, result.stderr
    assert cluster.plane.get(f"{_OURS}/secrets/headway-auth")["data"] == before


def _rights(plane: ControlPlane, account: str) -> set[tuple[str, str, str]]:
    """What the API server says that an account may do in the namespace."""
    review = {"spec": {"namespace": NAMESPACE}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    answer = plane.call("POST", path, review, token=plane.token(NAMESPACE, account))
    return {
        (group, resource, verb)
        for rule in answer.json()["status"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
