"""From models that are declared by where they are elsewhere to jobs, and to what is served of them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.checkpoint.model_digest import digest_of
from headway.controller.kubernetes.fetch_job import JOBS, FetchTemplate
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.model_uri import ModelUri
from tests.controller.kubernetes.cluster import Cluster

_TEMPLATE = FetchTemplate(
    job={
        "metadata": {"name": "headway-fetch", "labels": {"serving.headway.dev/fetch": "true"}},
        "spec": {"template": {"spec": {"containers": [{"name": "fetch", "command": ["headway", "fetch"]}]}}},
    }
)
_URI = "hf://acme/tiny"
_PLACE = ModelUri.parse(_URI)


@pytest.fixture
async def fetching(checkpoint: Path, tmp_path: Path) -> Cluster:
    """With a volume of its own, and nothing there."""
    cluster = Cluster(shutil.copytree(checkpoint, tmp_path / "models" / "tiny"))
    cluster.template = _TEMPLATE
    await cluster.restart()
    return cluster


def _report(cluster: Cluster, **told: Any) -> None:
    path = cluster.volume.report_path(_PLACE, sha256="")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"uri": _URI, **told}))


def _arrive(cluster: Cluster, checkpoint: Path) -> None:
    directory = shutil.copytree(checkpoint, cluster.volume.fetched_path(_PLACE))
    done = {"uri": _URI, "version": "c0ffee", "num_bytes": 9, "total_bytes": 9, "sha256": digest_of(checkpoint)}
    (directory / ".fetched.json").write_text(json.dumps(done))


def _message(cluster: Cluster, name: str) -> str:
    return str(cluster.api.statuses[name]["conditions"][0]["message"])


async def test_a_model_that_is_elsewhere_is_fetched_by_a_job_and_then_served(
    fetching: Cluster, checkpoint: Path
) -> None:
    await fetching.declare("chat", uri=_URI)
    [((kind, name), job)] = fetching.api.objects.items()
    assert (kind, name.rpartition("-")[0]) == ("Job", "headway-fetch")
    assert [owner["uid"] for owner in job["metadata"]["ownerReferences"]] == ["chat"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    target = fetching.volume.fetched_path(_PLACE)
    assert container["args"] == [
        "hf://acme/tiny@main",
        *("--to", str(target), "--report", str(fetching.volume.report_path(_PLACE, sha256=""))),
    ]
    assert fetching.reason("chat") == "Fetching"
    assert f"to be fetched by job {name}" in _message(fetching, "chat")
    fetching.jobs[name] = job
    fetching.api.objects.clear()
    _report(fetching, version="c0ffee", num_bytes=5_170_000_000, total_bytes=10_000_000_000)
    await fetching.step()
    assert "50 % of 10.0 GB" in _message(fetching, "chat")
    num_writes = fetching.api.num_writes["chat"]
    _report(fetching, version="c0ffee", num_bytes=5_300_000_000, total_bytes=10_000_000_000)
    await fetching.step()
    assert fetching.api.num_writes["chat"] == num_writes, "a status is not written for every byte"
    assert fetching.served == {}
    _arrive(fetching, checkpoint)
    await fetching.step()
    plan = fetching.service.desired_plan
    assert plan is not None
    assert plan.models[0].directory == str(target)
    fetched = {"version": "c0ffee", "sha256": digest_of(checkpoint), "bytes": 9}
    assert fetching.api.statuses["chat"]["fetched"] == fetched
    assert fetching.api.objects == {}, "what is there is not fetched again"
    await fetching.restart()
    assert fetching.reason("chat") == "InPlan"
    assert fetching.api.objects == {}


async def test_a_fetch_that_fails_says_why_and_is_tried_again(fetching: Cluster) -> None:
    await fetching.declare("chat", uri=_URI)
    [((_, name), job)] = fetching.api.objects.items()
    fetching.jobs[name] = job
    _report(fetching, error="The hub has no model acme/tiny.")
    await fetching.step()
    assert fetching.reason("chat") == "FetchFailed"
    assert "The hub has no model acme/tiny. It is tried again; kubectl logs" in _message(fetching, "chat")
    fetching.volume.report_path(_PLACE, sha256="").unlink()
    failed = {"type": "Failed", "status": "True", "message": "limit is reached"}
    fetching.jobs[name] = job | {"status": {"conditions": [failed]}}
    await fetching.step()
    assert f"Job {name} failed: limit is reached" in _message(fetching, "chat")
    fetching.jobs[name] = job | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    await fetching.step()
    assert "modelStorage is a volume that is shared" in _message(fetching, "chat")
    fetching.api.objects.clear()
    fetching.jobs.clear()  # Kubernetes forgets jobs that have ended
    await fetching.step()
    assert (JOBS.kind, name) in fetching.api.objects


async def test_a_job_that_the_api_server_refuses_disturbs_no_other_model(fetching: Cluster, checkpoint: Path) -> None:
    fetching.api.refusal = FailedPreconditionError("exceeded quota: jobs.batch=0")
    await fetching.declare("chat", uri=_URI)
    await fetching.declare("other", path=str(checkpoint))
    assert "exceeded quota" in _message(fetching, "chat")
    assert list(fetching.served) == ["other"]
    fetching.api.refusal = None
    await fetching.step()
    assert fetching.reason("chat") == "Fetching"


async def test_a_job_that_failed_is_not_waited_for_once_jobs_are_others(fetching: Cluster) -> None:
    """As after an upgrade that gives them credentials."""
    await fetching.declare("chat", uri=_URI)
    [((_, name), job)] = fetching.api.objects.items()
    fetching.jobs[name] = job | {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    fetching.api.objects.clear()
    await fetching.step()
    assert fetching.api.objects == {}
    fetching.template = replace(_TEMPLATE, job=_TEMPLATE.job | {"spec": _TEMPLATE.job["spec"] | {"backoffLimit": 9}})
    await fetching.restart()
    [(_, other)] = fetching.api.objects
    assert other != name
    assert fetching.reason("chat") == "Fetching"


async def test_two_that_name_one_place_share_a_job(fetching: Cluster) -> None:
    await fetching.declare("chat", uri=_URI)
    await fetching.declare("other", uri=_URI, revision="main")
    [job] = fetching.api.objects.values()
    assert [owner["uid"] for owner in job["metadata"]["ownerReferences"]] == ["chat", "other"]
    await fetching.declare("pinned", uri=_URI, revision="v1", sha256="1" * 64)
    assert len(fetching.api.objects) == 2


async def test_files_with_another_digest_are_not_served(fetching: Cluster, checkpoint: Path) -> None:
    await fetching.declare("chat", uri=_URI)
    _arrive(fetching, checkpoint)
    await fetching.step()
    await fetching.declare("chat", uri=_URI, sha256="1" * 64)
    assert fetching.reason("chat") == "Invalid"
    assert f"had the digest {digest_of(checkpoint)}" in _message(fetching, "chat")
    assert list(fetching.served) == ["chat"], "the earlier state is served"
    await fetching.declare("chat", uri=_URI, sha256=digest_of(checkpoint))
    assert fetching.reason("chat") == "InPlan"
    (fetching.volume.fetched_path(_PLACE) / ".fetched.json").unlink()
    await fetching.declare("chat", uri=_URI, sha256=digest_of(checkpoint), maxModelLen=32)
    assert "had no known digest" in _message(fetching, "chat")


async def test_a_served_model_stays_while_another_revision_is_fetched(fetching: Cluster, checkpoint: Path) -> None:
    await fetching.declare("chat", path=str(checkpoint))
    before = fetching.service.desired_plan
    await fetching.declare("chat", uri=_URI)
    assert fetching.service.desired_plan == before
    assert fetching.reason("chat") == "Fetching"
    _arrive(fetching, checkpoint)
    await fetching.step()
    plan = fetching.service.desired_plan
    assert plan is not None
    assert plan.models[0].directory == str(fetching.volume.fetched_path(_PLACE))


async def test_where_nothing_is_fetched_that_is_said(cluster: Cluster) -> None:
    await cluster.declare("chat", uri=_URI)
    assert cluster.reason("chat") == "CannotBePlanned"
    assert "modelStorage.fetch.enabled is false" in _message(cluster, "chat")


@pytest.mark.parametrize(
    "text", ["spec: 1", "[", "metadata: {name: x}\nspec: {template: {spec: {containers: []}}}", "{}"]
)
def test_a_template_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "fetch.yaml").write_text(text)
    with pytest.raises(InvalidArgumentError, match="no template of jobs"):
        FetchTemplate.read(tmp_path / "fetch.yaml")
