"""From declared resources to plans, events and statuses."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.checkpoint.model_digest import digest_of
from headway.controller.kubernetes.fetch_job import JOBS, FetchTemplate
from headway.controller.kubernetes.model_deployments import ModelDeployments
from headway.controller.kubernetes.model_fetches import ModelFetches
from headway.controller.kubernetes.model_volume import ModelVolume
from headway.core.errors import FailedPreconditionError
from headway.core.model_uri import ModelUri
from headway.core.parallel_config import ParallelConfig
from tests.checkpoints import make_checkpoint
from tests.controller.kubernetes.planning import Api, Service


class Cluster:
    """The loop, a step at a time."""

    def __init__(self, checkpoint: Path) -> None:
        self.api, self.service = Api(), Service()
        self.num_workers, self.now_s = 1, 0.0
        self.jobs: dict[str, dict[str, Any]] = {}
        self.template: FetchTemplate | None = None
        self._checkpoint = checkpoint
        self._declared: dict[str, dict[str, Any]] = {}
        self._models = self._controller()

    def _controller(self) -> ModelDeployments:
        self.volume = ModelVolume(directory=self._checkpoint.parent, claim="models")
        self._fetches = ModelFetches(self.api, template=self.template, volume=self.volume)  # type: ignore[arg-type]
        return ModelDeployments(
            self.api,  # type: ignore[arg-type]
            service=self.service,
            num_workers=lambda: self.num_workers,
            clock=lambda: self.now_s,
            volume=self.volume,
            fetches=self._fetches,
            is_emulated=False,
        )

    async def restart(self) -> None:
        """Another controller, which hears what the last one has written."""
        for name, declared in self._declared.items():
            declared["status"] = self.api.statuses[name]
        self._models = self._controller()
        await self.step()

    async def declare(self, name: str, *, approved: str = "", age: int = 0, **spec: Any) -> None:
        before = self._declared.get(name, {"metadata": {"generation": 0}, "spec": None})
        spec = ({} if "uri" in spec else {"path": str(self._checkpoint)}) | spec
        generation = before["metadata"]["generation"] + (spec != before["spec"])
        metadata = {"name": name, "uid": name, "generation": generation, "creationTimestamp": f"{9 - age}"}
        annotations = {"annotations": {"serving.headway.dev/apply": approved}} if approved else {}
        self._declared[name] = {"metadata": metadata | {"resourceVersion": "1"} | annotations, "spec": spec}
        await self.step()

    async def delete(self, name: str) -> None:
        del self._declared[name]
        await self.step()

    async def step(self) -> None:
        self._models.watch.objects = dict(self._declared)
        self._fetches.jobs.objects = dict(self.jobs)
        await self._models._step()

    @property
    def served(self) -> dict[str, int | None]:
        plan = self.service.desired_plan
        return {} if plan is None else {model.name: model.max_model_len for model in plan.models}

    def reason(self, name: str) -> str:
        [planned, *_] = self.api.statuses[name]["conditions"]
        return str(planned["reason"])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("models") / "tiny", "llama")


@pytest.fixture
def cluster(checkpoint: Path) -> Cluster:
    return Cluster(checkpoint)


async def test_workers_that_are_missing_are_waited_for_once_the_first_one_is_there(cluster: Cluster) -> None:
    cluster.num_workers, cluster.service.workers = 3, []
    for now_s, workers, is_planned in (
        (0, [], False),
        (600, [], False),
        (601, ["worker-0"], False),
        (650, ["worker-0", "worker-1"], False),
        (662, ["worker-0", "worker-1"], True),
    ):
        cluster.now_s, cluster.service.workers = now_s, workers
        await cluster.declare("chat")
        assert bool(cluster.served) == is_planned, now_s
    await cluster.delete("chat")
    cluster.service.desired_plan = None
    cluster.now_s, cluster.service.workers = 5000, ["worker-0", "worker-1", "worker-2"]
    await cluster.declare("code")
    assert cluster.served == {"code": None}, "all are there"


async def test_a_manual_change_waits_until_its_plan_is_approved(cluster: Cluster) -> None:
    await cluster.declare("chat", apply="Manual", maxModelLen=32)
    assert cluster.served == {}
    assert cluster.reason("chat") == "AwaitsApproval"
    proposal = cluster.api.statuses["chat"]["proposal"]
    assert proposal["changes"] == ["worker-of-chat: load chat (32 blocks)"]
    await cluster.declare("chat", apply="Manual", maxModelLen=32, approved="plan-0")
    assert cluster.served == {}
    await cluster.declare("chat", apply="Manual", maxModelLen=32, approved=proposal["planId"])
    assert cluster.served == {"chat": 32}
    assert "proposal" not in cluster.api.statuses["chat"]
    assert cluster.api.events == [("chat", "AwaitsApproval"), ("chat", "PlanApplied")]
    await cluster.declare("chat", apply="Manual", maxModelLen=48, approved=proposal["planId"])
    assert cluster.served == {"chat": 32}
    assert cluster.reason("chat") == "AwaitsApproval"
    await cluster.declare("chat", apply="Auto", maxModelLen=48)
    assert cluster.served == {"chat": 48}


async def test_others_go_on_beside_one_that_waits_and_its_proposal_keeps_them(cluster: Cluster) -> None:
    await cluster.declare("chat", maxModelLen=32)
    await cluster.declare("code", apply="Manual", maxModelLen=32)
    first = cluster.api.statuses["code"]["proposal"]["planId"]
    await cluster.step()
    assert cluster.api.statuses["code"]["proposal"]["planId"] == first
    await cluster.declare("chat", maxModelLen=40)
    assert cluster.served == {"chat": 40}
    second = cluster.api.statuses["code"]["proposal"]["planId"]
    await cluster.declare("code", apply="Manual", maxModelLen=32, approved=first)
    assert cluster.served == {"chat": 40}
    await cluster.declare("code", apply="Manual", maxModelLen=32, approved=second)
    assert cluster.served == {"chat": 40, "code": 32}
    await cluster.delete("code")
    assert cluster.served == {"chat": 40}


async def test_a_manual_change_that_cannot_be_planned_is_told(cluster: Cluster) -> None:
    await cluster.declare("chat", apply="Manual", maxModelLen=101)
    assert (cluster.reason("chat"), cluster.served) == ("CannotBePlanned", {})
    assert ("chat", "CannotBePlanned") in cluster.api.events


async def test_a_change_is_written_where_it_changes_something_and_nowhere_else(cluster: Cluster) -> None:
    for index in range(8):
        await cluster.declare(f"model-{index}", maxModelLen=8)
    first = {name: status["planId"] for name, status in cluster.api.statuses.items()}
    assert len(set(first.values())) == 8, "each has the plan that it came with"
    assert set(cluster.api.num_writes.values()) == {2}, "an event and a status each"

    cluster.api.num_writes.clear()
    await cluster.declare("model-3", maxModelLen=16)
    assert cluster.api.num_writes == {"model-3": 2}
    await cluster.delete("model-4")
    await cluster.declare("model-5", maxModelLen=64)
    assert cluster.reason("model-5") == "CannotBePlanned"
    assert cluster.api.num_writes == {"model-3": 2, "model-5": 2}

    cluster.api.num_writes.clear()
    await cluster.declare("model-6", maxModelLen=9)
    assert cluster.api.num_writes == {"model-6": 2}, "what is wrong with another one is told already"
    await cluster.restart()
    assert cluster.api.num_writes == {"model-6": 2}, "nor does the next controller tell anything again"
    told = {name: cluster.api.statuses[name]["planId"] for name in ("model-0", "model-7")}
    assert told == {name: first[name] for name in told}


async def test_the_next_controller_reads_a_plan_once_for_all_models_that_it_gave_groups(cluster: Cluster) -> None:
    for index in range(8):
        await cluster.declare(f"model-{index}", maxModelLen=8)
    cluster.service.workers.append("worker-1")
    await cluster.step()
    for status in cluster.api.statuses.values():
        status["planId"] = "plan-8"
    cluster.service.num_reads.clear()
    await cluster.restart()
    await cluster.step()
    assert cluster.service.num_reads == {"plan-8": 1}


async def test_priority_decides_who_is_served(cluster: Cluster) -> None:
    await cluster.declare("old", maxModelLen=60, age=2)
    await cluster.declare("young", maxModelLen=60)
    assert (cluster.served, cluster.reason("young")) == ({"old": 60}, "CannotBePlanned")
    await cluster.declare("young", maxModelLen=60, priority=1)
    assert cluster.served == {"young": 60}
    assert cluster.reason("old") == "CannotBePlanned"
    await cluster.delete("young")
    assert cluster.served == {"old": 60}


async def test_bounds_of_replicas_reach_the_plan_and_wrong_ones_are_told(cluster: Cluster) -> None:
    await cluster.declare("chat", replicas={"min": 2, "max": 3})
    plan = cluster.service.desired_plan
    assert plan is not None
    assert (plan.models[0].min_replicas, plan.models[0].max_replicas) == (2, 3)
    await cluster.declare("chat", replicas={"min": 3, "max": 2})
    assert cluster.reason("chat") == "Invalid"
    assert "min, 3, is above max, 2" in cluster.api.statuses["chat"]["conditions"][0]["message"]


async def test_layout_pools_and_roles_reach_the_plan_and_contradictions_are_told(cluster: Cluster) -> None:
    await cluster.declare("wide", parallelism={"tp": 2}, pools=["h100"])
    await cluster.declare("split", roles={"prefill": 1, "decode": 2})
    plan = cluster.service.desired_plan
    assert plan is not None
    split, wide = plan.models
    assert (wide.parallel, wide.pools) == (ParallelConfig(tp=2), ("h100",))
    assert (split.prefill_workers, split.decode_workers) == (1, 2)
    await cluster.declare("split", roles={"prefill": 1, "decode": 2}, parallelism={"pp": 2})
    assert cluster.reason("split") == "Invalid"
    assert "blocks move between lone" in cluster.api.statuses["split"]["conditions"][0]["message"]


async def test_a_model_is_found_on_the_releases_volume_and_nowhere_else(cluster: Cluster, checkpoint: Path) -> None:
    await cluster.declare("chat", uri="pvc://models/tiny")
    plan = cluster.service.desired_plan
    assert plan is not None
    assert plan.models[0].directory == str(checkpoint)
    for uri, told in (
        ("pvc://others/tiny", "the release's pods have the volume of claim models"),
        ("pvc://models/../secrets", "leaves its volume"),
        ("gs://org/model", "names no directory"),
        ("hf://a/b/c", "names no model"),
        ("pvc://models", "names no directory"),
    ):
        await cluster.declare("wrong", uri=uri)
        assert cluster.reason("wrong") == "Invalid"
        assert told in cluster.api.statuses["wrong"]["conditions"][0]["message"]
    await cluster.declare("wrong", uri="pvc://models/nowhere")
    assert cluster.reason("wrong") == "NotFound"
    assert list(cluster.served) == ["chat"]


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


def test_a_digest_is_what_sha256sum_says(tmp_path: Path) -> None:
    for name, text in (("b.json", "1"), ("A.json", "2"), ("a.safetensors", "3"), (".hidden", "4")):
        (tmp_path / name).write_text(text)
    command = ["sh", "-c", "sha256sum -- * | sha256sum"]
    environment = {"LC_ALL": "C", "PATH": os.environ["PATH"]}
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert digest_of(tmp_path) == told.stdout.split()[0]


async def test_files_that_are_not_what_was_meant_are_not_served(cluster: Cluster, checkpoint: Path) -> None:
    digest = digest_of(checkpoint)
    await cluster.declare("chat", sha256="0" * 64)
    assert cluster.reason("chat") == "Invalid"
    assert digest in cluster.api.statuses["chat"]["conditions"][0]["message"]
    await cluster.declare("chat", sha256=digest)
    assert list(cluster.served) == ["chat"]
