"""ModelDeployments on the server of Kubernetes for them: what is declared is planned, loaded and answered for."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.checkpoints import make_checkpoint
from tests.cluster.chart import VALUES, objects, render
from tests.cluster.control_plane import ControlPlane
from tests.cluster.release import Release
from tests.cluster.stream import answers

pytestmark = pytest.mark.timeout(400)

NAMESPACE = "serving"
RESOURCES = f"/apis/serving.headway.dev/v1alpha1/namespaces/{NAMESPACE}/modeldeployments"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Cluster:
    """A release whose models are resources of an API server; `models` is the directory that pods have them in."""

    def __init__(self, plane: ControlPlane, release: Release, models: Path) -> None:
        self.models = models
        self.plane = plane
        self.release = release

    def declare(self, name: str, **spec: Any) -> httpx.Response:
        body = {
            "apiVersion": "serving.headway.dev/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": name},
            "spec": {"path": str(self.models / name)} | spec,
        }
        path = f"{RESOURCES}/{name}?fieldManager=kubectl&force=true&fieldValidation=Strict"
        return self.plane.call("PATCH", path, body, kind="application/apply-patch+yaml")

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.plane.get(f"{RESOURCES}/{name}").get("status", {})
        return status

    def conditions(self, name: str) -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        found = self.status(name).get("conditions", [])
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + 90
        while not is_so():
            if time.monotonic() > deadline_s:
                told = self.plane.call("GET", RESOURCES).text
                raise AssertionError(f"{what}: not within 90 s\n{told}\n{self.release.logs()}")
            time.sleep(0.1)

    def wait_for(self, name: str, condition: str, status: str = "True") -> None:
        """Until that is so of the resource as it is now."""

        def is_so() -> bool:
            resource = self.plane.get(f"{RESOURCES}/{name}")
            is_told = resource.get("status", {}).get("observedGeneration") == resource["metadata"]["generation"]
            return is_told and self.conditions(name).get(condition, ("", ""))[0] == status

        self.wait(is_so, f"{name} is {condition}={status}")

    def workers(self) -> dict[str, int]:
        """The processes of the cells, and how often each was started."""
        return {pod.name: pod.num_starts for pod in self.release.of("worker")}

    def answers(self, model: str) -> bool:
        return answers(self.release.endpoints(), model)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two that are small, and one that no four V100 hold."""
    directory = tmp_path_factory.mktemp("models")
    for name in ("tiny", "second"):
        make_checkpoint(directory / name, "llama")
    shutil.copytree(directory / "tiny", directory / "huge")
    config = json.loads((directory / "huge/config.json").read_text())
    config |= {"hidden_size": 16384, "intermediate_size": 65536, "num_hidden_layers": 160}
    config |= {"num_attention_heads": 128, "num_key_value_heads": 128, "head_dim": 128}
    (directory / "huge/config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="module")
def cluster(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    rendered = objects(render(VALUES["resources"], changes={"modelStorage": {"hostPath": str(models)}}))
    with (
        ControlPlane(tmp_path_factory.mktemp("plane")) as plane,
        Release(tmp_path_factory.mktemp("release")) as release,
    ):
        [definition] = [document for document in rendered if document["kind"] == "CustomResourceDefinition"]
        plane.create(DEFINITIONS, definition)
        account = tmp_path_factory.mktemp("account") / "controller"
        release.kubernetes = (plane.address, plane.service_account(NAMESPACE, account))
        running = Cluster(plane, release, models)
        release.apply(rendered)
        running.wait(lambda: plane.call("GET", RESOURCES).status_code == httpx.codes.OK, "the definition is served")
        yield running


def test_a_declared_model_is_planned_loaded_and_answered_for(cluster: Cluster) -> None:
    assert cluster.declare("tiny", slo={"ttftMs": 500}).is_success
    cluster.wait_for("tiny", "Ready")
    cluster.wait_for("tiny", "Loaded")
    status = cluster.status("tiny")
    assert cluster.conditions("tiny")["Degraded"] == ("False", "AsPlanned")
    assert status["groups"].split("/")[0] == status["groups"].split("/")[1] != "0"
    assert status["predicted"].keys() == {"ttftMs", "tpotMs"}
    cluster.wait(lambda: cluster.answers("tiny"), "it is answered for")


def test_an_unknown_or_wrong_field_is_refused_by_the_api_server(cluster: Cluster) -> None:
    for changes, told in (
        ({"replicsa": 2}, "replicsa"),
        ({"slo": {"ttft": 5}}, "ttft"),
        ({"slo": {"ttftMs": 0}}, "ttftMs"),
        ({"maxModelLen": "long"}, "maxModelLen"),
        ({"dtype": "float8"}, "dtype"),
        ({"path": "models/tiny"}, "spec.path"),
    ):
        answer = cluster.declare("wrong", **changes)
        assert not answer.is_success
        assert told in answer.json()["message"]


def test_another_model_moves_in_without_a_process_that_is_started_anew(cluster: Cluster) -> None:
    before = cluster.workers()
    assert cluster.declare("second").is_success
    for name in ("tiny", "second"):
        cluster.wait_for(name, "Loaded")
        cluster.wait(lambda name=name: cluster.answers(name), f"{name} is answered for")  # type: ignore[misc]
    assert cluster.status("tiny")["planId"] == cluster.status("second")["planId"]
    assert cluster.workers() == before


def test_a_model_that_cannot_fit_disturbs_nobody_and_is_told_why(cluster: Cluster) -> None:
    plan_id = cluster.status("tiny")["planId"]
    assert cluster.declare("huge").is_success
    cluster.wait_for("huge", "Planned", "False")
    cluster.wait(lambda: cluster.conditions("huge")["Planned"][1] != "Waiting", "it is told why")
    assert cluster.conditions("huge")["Planned"] == ("False", "CannotBePlanned")
    [planned, *_] = cluster.status("huge")["conditions"]
    assert "huge" in planned["message"]
    assert cluster.status("tiny")["planId"] == plan_id
    assert cluster.answers("tiny")
    assert cluster.plane.call("DELETE", f"{RESOURCES}/huge").is_success


def test_a_served_model_that_is_made_impossible_stays_as_it_was(cluster: Cluster) -> None:
    assert cluster.declare("second", path="/models/nowhere").is_success
    cluster.wait_for("second", "Degraded")
    assert cluster.conditions("second")["Planned"] == ("False", "NotFound")
    assert cluster.conditions("second")["Ready"][0] == "True"
    assert cluster.answers("second")
    assert cluster.declare("second").is_success
    cluster.wait_for("second", "Planned")
    cluster.wait_for("second", "Degraded", "False")


def test_of_two_with_one_name_the_older_has_it(cluster: Cluster) -> None:
    assert cluster.declare("thief", path=str(cluster.models / "tiny"), servedName="tiny").is_success
    cluster.wait_for("thief", "Planned", "False")
    cluster.wait(lambda: cluster.conditions("thief")["Planned"][1] == "NameTaken", "the name is taken")
    assert cluster.conditions("tiny")["Ready"][0] == "True"
    assert cluster.plane.call("DELETE", f"{RESOURCES}/thief").is_success


def test_a_status_that_somebody_edits_is_put_right(cluster: Cluster) -> None:
    true = cluster.status("tiny")
    body = {"status": {"groups": "9/9", "planId": "invented"}}
    answer = cluster.plane.call("PATCH", f"{RESOURCES}/tiny/status", body, kind="application/merge-patch+json")
    assert answer.is_success
    cluster.wait(lambda: cluster.status("tiny") == true, "the status is as it was")


def test_where_nothing_changes_nothing_is_written(cluster: Cluster) -> None:
    """One watch is all that a controller costs then."""
    versions = [each["metadata"]["resourceVersion"] for each in cluster.plane.get(RESOURCES)["items"]]
    before = _num_requests(cluster.plane)
    time.sleep(6)
    assert _num_requests(cluster.plane) == before
    assert [each["metadata"]["resourceVersion"] for each in cluster.plane.get(RESOURCES)["items"]] == versions


def test_an_api_server_that_is_away_ends_nothing_and_is_followed_again(cluster: Cluster) -> None:
    cluster.plane.kill_api_server()
    time.sleep(3)
    assert cluster.answers("tiny")
    cluster.plane.start_api_server()
    assert cluster.declare("second", maxModelLen=64).is_success
    cluster.wait_for("second", "Loaded")
    assert cluster.answers("tiny")


def test_the_next_controller_goes_on_with_the_plan(cluster: Cluster) -> None:
    plan_id, before = cluster.status("tiny")["planId"], cluster.workers()
    [controller] = cluster.release.of("controller")
    num_starts = controller.num_starts
    controller.kill()
    cluster.wait(lambda: controller.num_starts > num_starts and controller.is_ready(), "another one runs")
    assert cluster.declare("second", maxModelLen=48).is_success
    cluster.wait_for("second", "Loaded")
    assert cluster.workers() == before
    assert plan_id != cluster.status("tiny")["planId"] == cluster.status("second")["planId"]
    assert cluster.answers("tiny")


def test_a_deleted_resource_ends_its_model_only(cluster: Cluster) -> None:
    assert cluster.plane.call("DELETE", f"{RESOURCES}/second").is_success
    cluster.wait(lambda: not cluster.answers("second"), "second is gone")
    assert cluster.answers("tiny")


def test_the_last_model_stays_until_another_is_declared(cluster: Cluster) -> None:
    assert cluster.plane.call("DELETE", f"{RESOURCES}/tiny").is_success
    assert cluster.answers("tiny")
    assert cluster.declare("second").is_success
    cluster.wait(lambda: not cluster.answers("tiny"), "tiny is gone")
    cluster.wait_for("second", "Ready")
    cluster.wait(lambda: cluster.answers("second"), "second is answered for")


def _num_requests(plane: ControlPlane) -> float:
    """Requests for our resources and for events, but for the tests' own."""
    text = plane.call("GET", "/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("apiserver_request_total")]
    counted = [line for line in lines if 'resource="modeldeployments"' in line and 'verb="GET"' not in line]
    return sum(float(line.rpartition(" ")[2]) for line in counted if 'verb="LIST"' not in line)
