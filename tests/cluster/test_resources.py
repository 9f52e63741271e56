"""ModelDeployments of an installed release: what is declared is planned, loaded and answered for."""

import os
import re
import time
from typing import Any

from headway.checkpoint.model_digest import digest_of
from tests.cluster.cluster import NAMESPACE, RESOURCES, Cluster
from tests.cluster.rights import RIGHTS_ON_JOBS, RIGHTS_ON_MODELS
from tests.command import run_headway
from tests.fetch.hub import COMMIT, Hub, serving_hub


def test_a_declared_model_is_planned_loaded_and_answered_for(cluster: Cluster) -> None:
    assert not cluster.declare("tiny", slo={"ttftMs": 500})
    cluster.wait_for("tiny", "Ready")
    cluster.wait_for("tiny", "Loaded")
    status = cluster.status("tiny")
    assert cluster.conditions("tiny")["Degraded"] == ("False", "AsPlanned")
    assert status["groups"].split("/")[0] == status["groups"].split("/")[1] != "0"
    assert status["predicted"].keys() == {"ttftMs", "tpotMs"}
    cluster.wait(lambda: cluster.answers("tiny"), "it is answered for")


def test_kubectl_shows_it_in_columns_and_its_events(cluster: Cluster) -> None:
    shown = cluster.plane.kubectl("get", "md", "--namespace", NAMESPACE).stdout
    heads, row = shown.splitlines()
    assert re.split(r"\s{2,}", heads)[:5] == ["NAME", "READY", "DEGRADED", "GROUPS", "LAYOUT"]
    assert re.match(r"tiny +True +False +(\d)/\1 ", row)
    assert re.search(r"Normal +PlanApplied +modeldeployment/tiny", _events(cluster, "tiny"))


def test_an_unknown_or_wrong_field_is_refused_by_the_api_server(cluster: Cluster) -> None:
    for changes, told in (
        ({"replicsa": 2}, "replicsa"),
        ({"slo": {"ttft": 5}}, "ttft"),
        ({"slo": {"ttftMs": 0}}, "ttftMs"),
        ({"maxModelLen": "long"}, "maxModelLen"),
        ({"dtype": "float8"}, "dtype"),
        ({"path": "models/tiny"}, "spec.path"),
        ({"replicas": {"min": 2, "max": 1}}, "replicas.min is above replicas.max"),
        ({"replicas": {"min": 1, "idleSeconds": 60}}, "idleSeconds says when"),
        ({"engine": "vllm-server", "replicas": {"min": 0}}, "loaded all the time"),
        ({"parallelism": {"dp": 2}}, "dp"),
        ({"roles": {"prefill": 1}}, "spec.roles.decode"),
        ({"roles": {"prefill": 1, "decode": 1}, "parallelism": {"tp": 2}}, "roles and parallelism contradict"),
        ({"roles": {"prefill": 1, "decode": 1}, "replicas": {"max": 2}}, "roles and replicas both"),
        ({"engine": "vllm", "parallelism": {"pp": 2}}, "leave parallelism and roles out"),
        ({"uri": "hf://acme/tiny"}, "give one of path and uri"),
        ({"path": None, "uri": "gs://bucket/tiny"}, "uri begins with pvc://, hf://, s3:// or oci://"),
        ({"path": None, "uri": "s3://bucket/tiny", "revision": "v1"}, "revision is of a uri with hf:// or oci://"),
    ):
        assert told in cluster.declare("wrong", **changes)
    assert cluster.plane.call("GET", f"{RESOURCES}/wrong").status_code == 404


def test_another_model_moves_in_without_a_process_that_is_started_anew(cluster: Cluster) -> None:
    before = cluster.workers()
    assert not cluster.declare("second")
    for name in ("tiny", "second"):
        cluster.wait_for(name, "Loaded")
        cluster.wait(lambda name=name: cluster.answers(name), f"{name} is answered for")  # type: ignore[misc]
    assert cluster.status("tiny")["planId"] == cluster.status("second")["planId"]
    assert cluster.workers() == before


def test_a_model_that_cannot_fit_disturbs_nobody_and_is_told_why(cluster: Cluster) -> None:
    plan_id = cluster.status("tiny")["planId"]
    assert not cluster.declare("huge")
    cluster.wait_for("huge", "Planned", "False")
    cluster.wait(lambda: cluster.conditions("huge")["Planned"][1] != "Waiting", "it is told why")
    assert cluster.conditions("huge")["Planned"] == ("False", "CannotBePlanned")
    [planned, *_] = cluster.status("huge")["conditions"]
    assert "huge" in planned["message"]
    assert cluster.status("tiny")["planId"] == plan_id
    assert cluster.answers("tiny")
    assert "CannotBePlanned" in _events(cluster, "huge")
    cluster.delete("huge")


def test_a_served_model_that_is_made_impossible_stays_as_it_was(cluster: Cluster) -> None:
    assert not cluster.declare("second", path="/models/nowhere")
    cluster.wait_for("second", "Degraded")
    assert cluster.conditions("second")["Planned"] == ("False", "NotFound")
    assert cluster.conditions("second")["Ready"][0] == "True"
    assert cluster.answers("second")
    assert not cluster.declare("second")
    cluster.wait_for("second", "Planned")
    cluster.wait_for("second", "Degraded", "False")


def test_a_change_that_waits_for_approval_is_made_when_it_is_approved(cluster: Cluster) -> None:
    plan_id = cluster.status("tiny")["planId"]
    assert not cluster.declare("second", apply="Manual", maxModelLen=80)
    cluster.wait(lambda: "proposal" in cluster.status("second"), "a plan is proposed")
    assert cluster.status("tiny")["planId"] == plan_id
    proposed = cluster.status("second")["proposal"]["planId"]
    approval = f"serving.headway.dev/apply={proposed}"
    assert not cluster.plane.kubectl("annotate", "md/second", approval, "--namespace", NAMESPACE).stderr
    cluster.wait(lambda: cluster.status("second")["planId"] == proposed, "the plan is applied")
    assert not cluster.declare("second")
    cluster.wait_for("second", "Loaded")


def test_a_model_that_nobody_asks_for_sleeps_until_the_next_request(cluster: Cluster) -> None:
    before = cluster.workers()
    assert not cluster.declare("second", replicas={"min": 0, "idleSeconds": 5})
    cluster.wait(lambda: cluster.conditions("second").get("Loaded") == ("False", "Asleep"), "it sleeps")
    assert cluster.conditions("second")["Ready"] == cluster.conditions("second")["Planned"] == ("True", "Asleep")
    assert cluster.answers("tiny")
    assert cluster.answers("second")
    cluster.wait_for("second", "Loaded")
    assert cluster.workers() == before
    assert not cluster.declare("second")
    cluster.wait_for("second", "Loaded")


def test_of_two_with_one_name_the_older_has_it(cluster: Cluster) -> None:
    assert not cluster.declare("thief", path=str(cluster.models / "tiny"), servedName="tiny")
    cluster.wait_for("thief", "Planned", "False")
    cluster.wait(lambda: cluster.conditions("thief")["Planned"][1] == "NameTaken", "the name is taken")
    assert cluster.conditions("tiny")["Ready"][0] == "True"
    cluster.delete("thief")


def test_a_status_that_somebody_edits_is_put_right(cluster: Cluster) -> None:
    true = cluster.status("tiny")
    body = {"status": {"groups": "9/9", "planId": "invented"}}
    answer = cluster.plane.call("PATCH", f"{RESOURCES}/tiny/status", body, kind="application/merge-patch+json")
    assert answer.is_success
    cluster.wait(lambda: cluster.status("tiny") == true, "the status is as it was")


def test_where_nothing_changes_nothing_is_written(cluster: Cluster) -> None:
    """A watch is all that a controller costs then."""
    versions = [each["metadata"]["resourceVersion"] for each in cluster.plane.get(RESOURCES)["items"]]
    before = _num_writes(cluster)
    time.sleep(6)
    assert _num_writes(cluster) == before
    assert [each["metadata"]["resourceVersion"] for each in cluster.plane.get(RESOURCES)["items"]] == versions


def test_an_api_server_that_is_away_ends_nothing_and_is_followed_again(cluster: Cluster) -> None:
    cluster.plane.kill_api_server()
    time.sleep(3)
    assert cluster.answers("tiny")
    cluster.plane.start_api_server()
    assert not cluster.declare("second", maxModelLen=64)
    cluster.wait_for("second", "Loaded")
    assert cluster.answers("tiny")


def test_the_next_controller_goes_on_with_the_plan(cluster: Cluster) -> None:
    plan_id, before = cluster.status("tiny")["planId"], cluster.workers()
    [controller] = cluster.release.of("controller")
    num_starts = controller.num_starts
    controller.kill()
    cluster.wait(lambda: controller.num_starts > num_starts and controller.is_ready(), "another one runs")
    assert not cluster.declare("second", maxModelLen=48)
    cluster.wait_for("second", "Loaded")
    assert cluster.workers() == before
    assert cluster.status("tiny")["planId"] == plan_id != cluster.status("second")["planId"], "of who gave the workers"
    assert cluster.answers("tiny")


def test_a_model_that_is_elsewhere_is_fetched_and_served(cluster: Cluster) -> None:
    """The pod of its job is admitted here, and only pretends to run: what it would run is run beside it."""
    assert not cluster.declare("fetched", path=None, uri="hf://acme/tiny", apply="Auto")
    cluster.wait(lambda: len(_fetches(cluster)) == 1, "there is a job")
    cluster.wait(lambda: cluster.conditions("fetched").get("Planned") == ("False", "Fetching"), "that is told")
    cluster.wait(lambda: _fetches(cluster)[0].get("status", {}).get("active") == 1, "its pod is admitted")
    [container] = _fetches(cluster)[0]["spec"]["template"]["spec"]["containers"]
    program, *command = container["command"]
    assert program == "headway"
    with serving_hub() as hub:
        failed = run_headway(*command, *container["args"], environment=_with(hub))
        assert "The hub has no model acme/tiny" in failed.stderr
        cluster.wait(lambda: cluster.conditions("fetched")["Planned"][1] == "FetchFailed", "it is told why")
        assert "The hub has no model acme/tiny" in cluster.status("fetched")["conditions"][0]["message"]
        hub.models["acme/tiny"] = cluster.models / "tiny"
        done = run_headway(*command, *container["args"], environment=_with(hub))
    assert done.returncode == 0, done.stderr
    cluster.wait_for("fetched", "Ready")
    cluster.wait(lambda: cluster.answers("fetched"), "it is answered for")
    fetched = cluster.status("fetched")["fetched"]
    assert (fetched["version"], fetched["sha256"]) == (COMMIT, digest_of(cluster.models / "tiny"))
    cluster.delete("fetched")
    cluster.wait(lambda: not _fetches(cluster), "the job is gone with it")


def test_a_deleted_resource_ends_its_model_only(cluster: Cluster) -> None:
    cluster.delete("second")
    cluster.wait(lambda: not cluster.answers("second"), "second is gone")
    assert cluster.answers("tiny")


def test_the_last_model_stays_until_another_is_declared(cluster: Cluster) -> None:
    cluster.delete("tiny")
    assert cluster.answers("tiny")
    assert not cluster.declare("second")
    cluster.wait(lambda: not cluster.answers("tiny"), "tiny is gone")
    cluster.wait_for("second", "Ready")
    cluster.wait(lambda: cluster.answers("second"), "second is answered for")


def test_the_controller_asks_for_what_it_has_a_right_to_and_needs_each_right(cluster: Cluster) -> None:
    """In all of the above. An API server that starts refuses everybody for a moment, until it knows the roles."""
    calls = cluster.calls()
    needed = RIGHTS_ON_MODELS | RIGHTS_ON_JOBS - {("batch", "jobs", "create")}
    assert {call.right for call in calls} == needed
    assert {call.right for call in calls if call.status < 300} == needed


def _events(cluster: Cluster, name: str) -> str:
    """As kubectl shows them."""
    selected = f"--field-selector=involvedObject.name={name}"
    return cluster.plane.kubectl("get", "events", "--namespace", NAMESPACE, selected).stdout


def _fetches(cluster: Cluster) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = cluster.plane.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs")["items"]
    return jobs


def _with(hub: Hub) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/tmp", "HF_ENDPOINT": hub.url}


def _num_writes(cluster: Cluster) -> int:
    return sum(call.verb not in ("list", "watch") for call in cluster.calls())
