"""A language model and a BERT that share groups: placed for a running stack of emulated V100s, applied, and asked."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis import Redis

from tests.integration.emulation import write_model, write_profiles
from tests.integration.placements import constant_requests, where
from tests.integration.stack import RunningStack, wait_for

WORKLOAD = ("--workload", "gamma:rate=12,cv=3", "--slo-scale", "6", "--duration", "60")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[RunningStack]:
    directory = tmp_path_factory.mktemp("shared")
    options = ("--emulate", "2xV100", "--max-model-len", "2000", "--answer-overhead", "4ms")
    options += ("--queue-policy", "least-slack")
    running = RunningStack(directory / "state", {"tiny": model}, *options).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def plan(stack: RunningStack, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The language model is asked rarely; bursts of requests to the BERT need both devices."""
    directory = tmp_path_factory.mktemp("plan")
    models = [
        {"name": "bert", "profile": "bert", "share": 20},
        {"name": "tiny", "generate": str(model), "prompt": "60 cv 0.5", "output": "8 cv 0.5"},
    ]
    (directory / "models.yaml").write_text(yaml.safe_dump({"models": models}))
    profiles = write_profiles(directory / "profiles.json")
    files = ("--models", str(directory / "models.yaml"), "--profiles", str(profiles), "--cluster", "live")
    found = stack.headway("plan", "serve", *files, *WORKLOAD, "--out", str(directory / "plan.yaml"), timeout_s=200)
    assert found.returncode == 0, found.stderr
    return directory / "plan.yaml"


def attainment(alternative: Any) -> float:
    return float(alternative["predictions"]["held_out"]["attainment"])


def test_what_the_stack_counts_for_an_answer_is_planned_with(stack: RunningStack, plan: Path) -> None:
    assert stack.status()["controller"]["answer_overhead_s"] == 0.004
    assert yaml.safe_load(plan.read_text())["problem"]["answer_overhead_s"] == 0.004


def test_the_stacks_policy_is_planned_with_unless_a_model_generates(
    stack: RunningStack, plan: Path, tmp_path: Path
) -> None:
    assert stack.status()["controller"]["queue_policy"] == "least-slack"
    assert yaml.safe_load(plan.read_text())["problem"]["queue_policy"] == "fcfs"
    (tmp_path / "models.yaml").write_text(yaml.safe_dump({"models": [{"name": "bert", "profile": "bert"}]}))
    files = ("--models", str(tmp_path / "models.yaml"), "--profiles", str(write_profiles(tmp_path / "profiles.json")))
    found = stack.headway("plan", "serve", *files, "--cluster", "live", *WORKLOAD, "--json", timeout_s=200)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["problem"]["queue_policy"] == "least-slack"


def test_sharing_keeps_more_objectives_than_a_device_for_each(stack: RunningStack, plan: Path) -> None:
    document = yaml.safe_load(plan.read_text())
    assert any(set(group["models"]) == {"bert", "tiny"} for group in document["placement"]["groups"])
    told = stack.headway("plan", "explain", str(plan), "--instead", "groups=2*1x1 models=bert@0;tiny@1", "--json")
    assert told.returncode == 0, told.stderr
    assert attainment(document) > attainment(json.loads(told.stdout)["instead"]) + 0.05


def test_both_answer_on_one_worker_once_the_plan_is_applied(stack: RunningStack, plan: Path) -> None:
    applied = stack.headway("apply", str(plan), "--yes", timeout_s=120)
    assert applied.returncode == 0, applied.stderr
    homes = where(stack)
    assert [home for home in homes["bert"] if home in homes["tiny"]]
    with constant_requests(stack, "tiny", "bert") as answered:
        pass
    assert all(answered.values())
    shown = stack.headway("plan", "explain").stdout
    assert "together" in " ".join(shown.split())


def test_a_search_that_was_left_to_the_stack_outlives_its_planner(stack: RunningStack, tmp_path: Path) -> None:
    models = [{"name": f"bert-{number}", "profile": "bert"} for number in range(16)]
    (tmp_path / "models.yaml").write_text(yaml.safe_dump({"models": models}))
    (tmp_path / "cluster.yaml").write_text("device: V100-16\nnum_devices: 16\nmemory_per_device: 8 GiB\n")
    profiles = write_profiles(tmp_path / "profiles.json")
    files = ("--models", str(tmp_path / "models.yaml"), "--cluster", str(tmp_path / "cluster.yaml"))
    search = (*files, "--profiles", str(profiles), "--workload", "gamma:rate=200,cv=4", "--duration", "60")
    started = stack.headway("plan", "serve", *search, "--time-limit", "20", "--detach", "--json")
    assert started.returncode == 0, started.stderr
    job_id = json.loads(started.stdout)["job_id"]
    with Redis.from_url(stack.stack.redis_url) as redis:
        wait_for(lambda: redis.exists(f"headway:search-best:{job_id}") == 1, timeout_s=60)
    gone = stack.kill("planner")
    wait_for(lambda: stack.status()["controller"]["ready"] and stack.pid("planner") != gone, timeout_s=60)
    shown = stack.headway("plan", "jobs", "show", job_id, "--wait", "--json", timeout_s=150)
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert document["job"]["state"] == "done"
    again = stack.headway("plan", "serve", *search, "--time-limit", "20", "--json")
    assert "known since" in again.stderr
    assert json.loads(again.stdout) == document["result"]
    listed = stack.headway("plan", "jobs")
    assert job_id in listed.stdout
    assert "16 models on 16 x V100-16" in listed.stdout
