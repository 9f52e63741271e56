"""Training plans as tables, pictures and documents."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headway.cli.plan_file import read_plan, write_plan
from headway.cli.training.document import training_document
from headway.cli.training.figure import draw_training_plan
from headway.cli.training.view import training_view
from headway.core.errors import InvalidArgumentError
from headway.core.plan.training import OtherSchedule, PlannedSchedule, TrainingPlan
from headway.core.training_cluster import TrainingCluster
from tests.cli.conftest import Run
from tests.core.plans import SERVING, TRAINING

SCHEDULED = replace(
    TRAINING,
    schedule=PlannedSchedule(
        name="zb-h1",
        orders=("F0 I0 W0", "F0 I0 W0"),
        makespan_s=0.98,
        iteration_s=1.03,
        period_s=0.0305,
        bubble=0.05,
        others=(
            OtherSchedule(name="1f1b", iteration_s=1.09, bubble=0.09, why_not="It takes 6.2% longer."),
            OtherSchedule(name="zb-h2", why_not="Stage 1 has nothing to split."),
        ),
    ),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    write_plan(TRAINING, path)
    return path


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_a_plan_is_read_as_it_was_written(tmp_path: Path, ending: str) -> None:
    write_plan(TRAINING, tmp_path / f"plan.{ending}")
    assert read_plan(tmp_path / f"plan.{ending}") == TRAINING


def test_the_document_has_what_scripts_ask_for() -> None:
    document = json.loads(json.dumps(training_document(TRAINING, ["Stage 1 is empty."])))
    assert document["iteration_s"] == 1.072
    assert document["throughput"] == pytest.approx(1024 / 1.072)
    # 4 devices of 8 are busy for 32 x 31 ms + 50 ms, and 4 for 32 x 30 ms + 50 ms.
    assert document["bubble"] == pytest.approx(1 - (4 * 1.042 + 4 * 1.010) / (8 * 1.072))
    assert (document["search_s"], document["search_cpu_s"], document["once_s"]) == (3.0, 5.0, 0.05)
    first, last = document["stages"]
    assert first["operators"] == ["matmul_0", "matmul_0_backward"]
    assert (first["devices"], last["devices"]) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert (first["mesh"], last["mesh"]) == ([2, 2], [4, 1])
    assert (first["micro_batch"], first["in_flight"], last["in_flight"]) == (32, 2, 1)
    assert first["memory"]["total_bytes"] == sum(first["memory"].values()) - first["memory"]["total_bytes"]
    assert [each["name"] for each in document["alternatives"]] == ["data parallel", "ZeRO-2"]
    assert "iteration_s" not in document["alternatives"][1]
    assert document["violations"] == ["Stage 1 is empty."]


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_is_whole_in_a_narrow_terminal(width: int) -> None:
    console = Console(width=width, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(training_view(TRAINING, ["Stage 1 takes too much."]), highlight=False)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert "\u2026" not in text
    for part in ("training-1", "2x4xV100-16", "955.2 examples/s", "Stage 1 takes too much.", "ZeRO-1; recomputes"):
        assert part in " ".join(text.split())
    for part in ("weights", "gradients", "optimizer", "activations", "workspace", "12.0 GiB", "80%", "0-3", "4-7"):
        assert part in text
    assert "data parallel: 1.6 s, 1.50x; 1 stage on 8x1" in text
    assert "ZeRO-2: does not fit: a device lacks 512.0 MiB" in text


def test_the_schedule_is_named_with_what_others_would_take(headway: Run, tmp_path: Path) -> None:
    console = Console(width=100, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(training_view(SCHEDULED), highlight=False)
    text = console.export_text()
    assert "schedule zb-h1: 1.0 s an iteration by simulation, 30.5 ms for one more micro-batch, 5% bubble" in text
    assert "instead schedule 1f1b: 1.1 s, 9% bubble" in text
    assert "instead schedule zb-h2: not for this plan" in text
    write_plan(SCHEDULED, tmp_path / "plan.yaml")
    assert read_plan(tmp_path / "plan.yaml") == SCHEDULED
    explained = headway("plan", "explain", str(tmp_path / "plan.yaml")).stdout
    assert "- It takes 6.2% longer." in explained
    document = training_document(SCHEDULED, ())
    assert (document["schedule"]["name"], document["schedule"]["iteration_s"]) == ("zb-h1", 1.03)
    refused = headway("plan", "train", "--model", "m", "--cluster", "c", "--batch", "1", "--schedule", "zb-v")
    assert "zb-v has several runs of layers on each device" in " ".join(refused.stderr.split())


@pytest.mark.parametrize("ending", ["yaml", "json"])
@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000, b"kind: 2020-13-45"])
def test_a_file_that_is_no_plan_is_refused_by_name(tmp_path: Path, ending: str, content: bytes) -> None:
    file = tmp_path / f"plan.{ending}"
    file.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=f"plan.{ending} is no plan"):
        read_plan(file)


def test_kinds_of_devices_are_named_where_there_are_several_and_idle_ones_told() -> None:
    [nodes] = TRAINING.cluster.groups
    other = replace(nodes, device="A100-80", num_nodes=1)
    plan = replace(TRAINING, cluster=TrainingCluster(groups=(nodes, other)))
    console = Console(width=160, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(training_view(plan), highlight=False)
    text = console.export_text()
    assert "4-7 V100-16" in text
    assert "no stage has devices of 1x4xA100-80" in text
    assert training_document(plan, ())["stages"][1]["device"] == "V100-16"


@pytest.mark.parametrize(
    ("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.html", b"<!doctype html>")]
)
def test_a_plan_is_drawn(tmp_path: Path, name: str, begins: bytes) -> None:
    draw_training_plan(TRAINING, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    assert content.startswith(begins)
    if name.endswith(("svg", "html")):
        assert b"<svg" in content


@pytest.mark.parametrize("num_nodes", [1, 512])
def test_clusters_of_any_size_are_drawn(tmp_path: Path, num_nodes: int) -> None:
    draw_training_plan(_on_nodes(num_nodes), tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 1000


def _on_nodes(num_nodes: int) -> TrainingPlan:
    group = replace(TRAINING.cluster.groups[0], num_nodes=num_nodes)
    stages = [replace(TRAINING.stages[0], first_device=4 * number) for number in range(num_nodes)]
    return replace(TRAINING, cluster=replace(TRAINING.cluster, groups=(group,)), stages=tuple(stages))


def test_a_file_is_shown_drawn_and_explained(headway: Run, file: Path, tmp_path: Path) -> None:
    shown = headway("plan", "show", str(file), "--figure", str(tmp_path / "plan.svg"))
    assert "955.2 examples/s" in shown.stdout, shown.stderr
    assert "<svg" in (tmp_path / "plan.svg").read_text()
    document = json.loads(headway("plan", "show", str(file), "--json").stdout)
    assert (document["kind"], document["version"]) == ("training", 1)
    explained = headway("plan", "explain", str(file)).stdout
    assert "- Two stages hand over less" in explained
    assert "It lacks 512 MiB." in explained
    as_json = json.loads(headway("plan", "explain", str(file), "--json").stdout)
    assert as_json["reasons"] == list(TRAINING.reasons)
    assert as_json["alternatives"][0]["why_not"] == ["It synchronises 2.6 GB."]


def test_what_cannot_be_done_with_it_is_told(headway: Run, file: Path, tmp_path: Path) -> None:
    write_plan(SERVING, tmp_path / "serving.json")
    for command, told in (
        (("apply", str(file)), "plan.kind is training, and a placement plan is needed"),
        (("plan", "explain", str(file), "--instead", "groups=1x1"), "no file of a placement"),
        (("plan", "show", str(tmp_path / "serving.json"), "--figure", "a.svg"), "plan-1 is no training plan"),
        (("plan", "show", str(file), "--figure", "a.txt"), "a.txt ends with none of"),
    ):
        result = headway(*command)
        assert result.returncode == 1
        assert told in " ".join(result.stderr.split())
        assert "Traceback" not in result.stderr
