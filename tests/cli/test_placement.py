"""`headway plan serve`, `explain` and `frontier`: real planner processes over gRPC, and no stack."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.cli.conftest import Run

STAGES = {"pp1_op1": [0.1], "pp2_op1": [0.055, 0.055], "pp1_op2": [0.07], "pp4_op1": [0.03, 0.03, 0.03, 0.03]}
GIB = 2**30


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Models, a cluster and profiles, in the directory that commands run in."""
    configs = {}
    for name, stage_s in STAGES.items():
        op = int(name[-1])
        configs[name] = {
            "pp": len(stage_s),
            "op": op,
            "weight_mem_bytes": [2 * GIB / (len(stage_s) * op)] * len(stage_s),
            "batch": {"1": {"stage_latency_s": stage_s, "act_mem_bytes": [0] * len(stage_s)}},
        }
    (tmp_path / "profiles.json").write_text(json.dumps({"models": {"tiny": {"configs": configs}}}))
    (tmp_path / "models.yaml").write_text("models:\n  - {name: chat, count: 4, profile: tiny}\n")
    (tmp_path / "cluster.yaml").write_text("device: V100-16\nnum_devices: 4\nmemory_per_device: 4 GiB\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def arguments(*others: str, workload: str = "gamma:rate=12,cv=3") -> tuple[str, ...]:
    files = ("--models", "models.yaml", "--cluster", "cluster.yaml", "--profiles", "profiles.json")
    return (*files, "--workload", workload, *others)


@pytest.mark.usefixtures("directory")
def test_what_an_answer_takes_besides_the_model_counts_against_its_objective(headway: Run) -> None:
    """Of an objective of 110 ms the fastest group leaves 40 ms."""

    def serve(overhead: str) -> subprocess.CompletedProcess[str]:
        options = ("--slo-scale", "1.1", "--duration", "60", "--answer-overhead", overhead, "--json")
        return headway("plan", "serve", *arguments(*options))

    little, much = serve("1ms"), serve("50ms")
    assert little.returncode == 0, little.stderr
    assert json.loads(little.stdout)["problem"]["answer_overhead_s"] == 0.001
    assert much.returncode == 1
    assert "can't keep its SLO of 0.11 s: the fastest answer takes 0.12 s" in " ".join(much.stderr.split())
    refused = headway("plan", "serve", *arguments("--rules", "artifact", "--answer-overhead", "1ms"))
    assert refused.returncode == 1
    assert "have an overhead of their own" in refused.stderr


@pytest.mark.usefixtures("directory")
def test_a_workload_that_no_memory_holds_is_refused_with_its_number(headway: Run) -> None:
    result = headway("plan", "serve", *arguments(workload="poisson:rate=1e12"))
    assert result.returncode == 1
    message = " ".join(result.stderr.split())
    assert "poisson:rate=1e+12, in 600 s, would make about 6e+14 requests; the most are 10,000,000" in message
    assert "--duration" in message


@pytest.mark.usefixtures("directory")
def test_profiles_that_were_imported_need_no_file(headway: Run) -> None:
    files = ("--models", "models.yaml", "--cluster", "cluster.yaml", "--workload", "poisson:rate=5")
    before = headway("plan", "serve", *files)
    assert before.returncode == 1
    assert "headway profile import" in before.stderr
    imported = json.loads(headway("profile", "import", "profiles.json", "--json").stdout)
    assert len(imported) == len(STAGES)
    result = headway("plan", "serve", *files, "--duration", "20", "--json")
    assert result.returncode == 0, result.stderr
    profiles = json.loads(result.stdout)["problem"]["profiles"]
    assert {profile["profile_id"] for profile in profiles} == {summary["profile_id"] for summary in imported}


def test_models_are_placed_and_another_placement_is_tried(headway: Run, directory: Path) -> None:
    result = headway("plan", "serve", *arguments("--duration", "120", "--out", "plan.yaml"))
    assert result.returncode == 0, result.stderr
    assert "best so far" in result.stderr
    assert "held out" in result.stdout
    assert "selective replication" in result.stdout
    plan: dict[str, Any] = yaml.safe_load((directory / "plan.yaml").read_text())
    assert list(plan)[:2] == ["kind", "version"]
    assert (plan["kind"], plan["version"]) == ("placement", 1)
    shown = headway("plan", "show", "plan.yaml", "--json")
    assert json.loads(shown.stdout) == plan, shown.stderr
    del plan["kind"]  # as older ones were written
    (directory / "old.json").write_text(json.dumps(plan))
    assert headway("plan", "show", "old.json").stdout == headway("plan", "show", "plan.yaml").stdout
    assert plan["is_complete"]
    assert plan["problem"]["profiles"][0]["profile_id"]
    assert {name for group in plan["placement"]["groups"] for name in group["models"]} == {
        f"chat-{number}" for number in range(4)
    }
    for alternative in plan["alternatives"]:
        assert alternative["why_not"]
        best = plan["predictions"]["searched"]["attainment"]
        assert alternative["predictions"]["searched"]["attainment"] <= best

    groups = plan["placement"]["groups"]
    where = ";".join(
        f"chat-{model}@" + ",".join(str(n) for n, group in enumerate(groups) if f"chat-{model}" in group["models"])
        for model in range(4)
    )
    tried = json.loads(headway("plan", "explain", "plan.yaml", "--instead", f"models={where}", "--json").stdout)
    assert tried["instead"]["predictions"]["searched"]["attainment"] == plan["predictions"]["searched"]["attainment"]
    result = headway("plan", "explain", "plan.yaml", "--instead", "groups=1x1")
    assert "4 of 1x1" in result.stdout, result.stderr
    assert "It keeps" in result.stdout


def test_the_fewest_devices_are_found_and_drawn(headway: Run, directory: Path) -> None:
    command = arguments("--duration", "60", "--figure", "curve.svg", "--json", workload="poisson:rate=4")
    result = headway("plan", "frontier", "devices", *command, "--attainment", "0.95")
    assert result.returncode == 0, result.stderr
    curve = json.loads(result.stdout)
    tried = {point["value"]: point["attainment"] for point in curve["points"]}
    assert tried[curve["best"]] >= 0.95
    assert tried[curve["best"] - 1] < 0.95
    assert "<svg" in (directory / "curve.svg").read_text()


@pytest.fixture
def large_problem(directory: Path) -> Path:
    """Searched for a minute, with a placement after the first seconds."""
    (directory / "models.yaml").write_text("models:\n  - {name: chat, count: 24, profile: tiny}\n")
    (directory / "cluster.yaml").write_text("device: V100-16\nnum_devices: 32\nmemory_per_device: 8 GiB\n")
    return directory


@pytest.fixture
def searching(large_problem: Path) -> Iterator["subprocess.Popen[str]"]:
    """A command that has begun to search."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    command = arguments("--duration", "60", "--out", "plan.json", workload="gamma:rate=150,cv=4")
    process = subprocess.Popen(
        [sys.executable, "-m", "headway.cli", "plan", "serve", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment | {"XDG_STATE_HOME": str(large_problem / "state")},
    )
    assert process.stderr is not None
    assert any(line.startswith("searching") for line in process.stderr)
    yield process
    process.kill()
    process.wait()


def test_ctrl_c_keeps_the_best_so_far(headway: Run, directory: Path, searching: "subprocess.Popen[str]") -> None:
    searching.send_signal(signal.SIGINT)
    assert searching.stderr is not None
    told = searching.stderr.read()
    assert searching.wait() == 0
    assert "Ending the search" in told
    plan = json.loads((directory / "plan.json").read_text())
    assert not plan["is_complete"]
    assert plan["placement"]["groups"]
    (job,) = json.loads(headway("plan", "jobs", "--json").stdout)
    assert job["state"] == "stopped"
    shown = json.loads(headway("plan", "jobs", "show", job["job_id"], "--json").stdout)
    assert shown["result"] == plan
    assert shown["best"]["placement"]["groups"]


def test_a_command_that_is_killed_leaves_its_best_and_no_process(
    headway: Run, searching: "subprocess.Popen[str]"
) -> None:
    """The planner that it started, and what that started."""
    left = psutil.Process(searching.pid).children(recursive=True)
    assert len(left) >= 2
    searching.kill()
    _, alive = psutil.wait_procs(left, timeout=30)
    assert alive == []
    listed = headway("plan", "jobs")
    assert "running" in listed.stdout, listed.stderr
    stopped = headway("plan", "jobs", "stop", "placement-")
    assert "has ended: stopped" in stopped.stdout, stopped.stderr
    shown = headway("plan", "jobs", "show", "placement-")
    assert "24 models on 32 x V100-16" in shown.stdout
    assert "best so far" in shown.stdout


@pytest.mark.usefixtures("directory")
def test_what_was_searched_is_known_the_second_time(headway: Run) -> None:
    command = arguments("--duration", "10", "--json", workload="poisson:rate=5")
    first = headway("plan", "serve", *command)
    assert "known since" not in first.stderr
    again = headway("plan", "serve", *command)
    assert "known since" in again.stderr
    assert json.loads(again.stdout) == json.loads(first.stdout)
    anew = headway("plan", "serve", *command, "--anew")
    assert json.loads(anew.stdout)["plan_id"] != json.loads(first.stdout)["plan_id"]
    shown = headway("plan", "jobs", "show", "placement-", "--wait")
    assert f"headway apply {json.loads(anew.stdout)['plan_id']}" in shown.stdout, shown.stderr


@pytest.mark.usefixtures("directory")
def test_jobs_that_are_not_there_and_stacks_that_do_not_run_are_told(headway: Run) -> None:
    unknown = headway("plan", "jobs", "show", "placement-0")
    assert unknown.returncode == 1
    assert "There is no search 'placement-0'" in unknown.stderr
    alone = headway("plan", "serve", *arguments("--detach"))
    assert alone.returncode == 1
    assert "No stack is running that could go on." in alone.stderr


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("models.yaml", "models:\n- {name: a, profile: huge}\n", "models.yaml, line 2: there is no profile of 'huge'"),
        ("cluster.yaml", "device: V100-16\nnum_devices: 0\n", "cluster.yaml, line 2: num_devices should be a whole"),
        ("profiles.json", '{"models": {"tiny": {"configs": {"pp1_op1": {}}}}}', "configs.pp1_op1 lacks 'pp'"),
    ],
)
def test_a_fault_in_a_file_is_told_with_its_place(
    headway: Run, directory: Path, file: str, text: str, told: str
) -> None:
    (directory / file).write_text(text)
    result = headway("plan", "serve", *arguments())
    assert result.returncode == 1
    assert told in result.stderr
    assert "hint: " in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (arguments(workload="nothing.csv"), "nothing.csv cannot be read"),
        (arguments("--out", "plan.txt"), "plan.txt ends with none of"),
    ],
)
def test_a_fault_in_an_option_is_told(headway: Run, directory: Path, options: tuple[str, ...], told: str) -> None:
    result = headway("plan", "serve", *options)
    assert result.returncode == 1
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_a_fault_in_a_trace_comes_back_from_the_planner(headway: Run, directory: Path) -> None:
    (directory / "trace.csv").write_text("time_s,model\n1,chat-0\n2,chat-9\n")
    result = headway("plan", "serve", *arguments(workload="trace.csv"))
    assert result.returncode == 1
    assert "trace.csv, line 3 names the model 'chat-9'" in result.stderr


def test_a_file_that_is_no_plan_is_told(headway: Run, directory: Path) -> None:
    for text, told in (
        ("version: 7\nplacement: {}\n", "plan.yaml: plan.version is 7"),
        ("kind: placement\nversion: 7\n", "plan.yaml: plan.version is 7"),
        ("version: 7\n", "plan.yaml: plan has no field 'kind'"),
        ("kind: holiday\n", "plan.yaml: plan.kind is 'holiday'"),
    ):
        (directory / "plan.yaml").write_text(text)
        result = headway("plan", "explain", "plan.yaml")
        assert result.returncode == 1
        assert told in " ".join(result.stderr.split())
        assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("directory")
def test_who_is_next_in_line_is_planned_with_and_the_other_way_weighed(headway: Run) -> None:
    def serve(*options: str) -> Any:
        files = arguments("--duration", "60", "--json", *options, workload="gamma:rate=25,cv=3")
        found = headway("plan", "serve", *files)
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout)

    by_turn, by_slack = serve("--queue-policy", "fcfs"), serve()
    assert "queue_policy" not in by_turn["problem"] or by_turn["problem"]["queue_policy"] == "fcfs"
    assert by_slack["problem"]["queue_policy"] == "least-slack"
    assert "the same groups, least slack first" in {each["name"] for each in by_turn["alternatives"]}
    others = {each["name"]: each for each in by_slack["alternatives"]}
    other = others["the same groups, first come, first served"]
    assert other["placement"] == by_slack["placement"]
    assert any("--queue-policy fcfs" in reason for reason in other["why_not"])
