"""From declared resources to plans, events and statuses."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from headway.checkpoint.model_digest import digest_of
from headway.core.errors import FailedPreconditionError
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import ModelDeployment, ServingPlan
from tests.controller.kubernetes.cluster import Cluster


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


async def test_workers_are_waited_for_while_it_is_not_known_how_many_there_are_to_be(cluster: Cluster) -> None:
    cluster.num_workers = None
    await cluster.declare("chat")
    assert cluster.served == {}
    cluster.num_workers = 1
    await cluster.step()
    assert list(cluster.served) == ["chat"]


async def test_a_plan_that_was_applied_while_another_was_made_is_not_written_over(cluster: Cluster) -> None:
    await cluster.declare("chat", maxModelLen=8)
    before, propose = cluster.service.desired_plan, cluster.service.propose
    assert before is not None
    woken = replace(before, plan_id="woken")

    async def propose_and_be_overtaken(models: Sequence[ModelDeployment]) -> ServingPlan:
        plan = await propose(models)
        cluster.service.desired_plan, cluster.service.propose = woken, propose  # type: ignore[method-assign]
        return plan

    cluster.service.propose = propose_and_be_overtaken  # type: ignore[method-assign]
    with pytest.raises(FailedPreconditionError):
        await cluster.declare("code", maxModelLen=8)
    assert cluster.service.desired_plan is woken
    await cluster.step()
    assert cluster.served == {"chat": 8, "code": 8}


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
