"""`headway plan schedule` as people and scripts use it, with a planner of its own."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headway.cli.plan_file import write_plan
from headway.cli.schedule.beside import read_beside
from headway.cli.schedule.figure import draw_schedule
from headway.cli.schedule.given import given_search
from headway.cli.schedule.source import find_placement
from headway.cli.schedule.trace import chrome_trace
from headway.cli.schedule.view import schedule_view
from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError
from headway.core.exports.torch_pipelining import torch_csv
from headway.core.pipeline_shapes import ShapeOptions, named_placement
from headway.core.schedule_search import ScheduleAction, ScheduleReport, search_of
from headway.planner.jobs.schedule import answer
from headway.planner.schedule.predefined.methods import predefined
from tests.cli.conftest import Run
from tests.core.plans import TRAINING

WANTED = {
    "period",
    "lower_bound",
    "bubble_rate",
    "repetend_micro_batches",
    "makespan",
    "peak_memory",
    "search_s",
    "search_cpu_s",
    "is_optimal",
    "violations",
}


@pytest.fixture(scope="module")
def report() -> ScheduleReport:
    placement = replace(named_placement("V", 4, ShapeOptions(backward=2)), memory=4)
    search = search_of(placement, 8, action=ScheduleAction.COMPARE)
    return answer(search, placement, lambda: False)


def test_a_schedule_is_searched_checked_and_improved(headway: Run, tmp_path: Path) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    csv = tmp_path / "a.csv"
    arguments = (
        "--placement",
        "zigzag",
        "--split-backward",
        "--backward",
        "2",
        "--devices",
        "2",
        "--micro-batches",
        "6",
    )
    found = headway("plan", "schedule", *arguments, "--csv", str(csv), "--json", *state)
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert set(document) >= WANTED
    assert (document["period"], document["is_optimal"], document["violations"]) == (6, True, [])
    checked = headway("plan", "schedule", "check", str(csv), "--times", "F=1,I=1,W=1", "--json", *state)
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["makespan"] == document["makespan"]
    improved = headway(
        "plan", "schedule", "improve", str(csv), "--times", "F=1,I=1,W=1", "--memory", "2", "--json", *state
    )
    assert improved.returncode == 0, improved.stderr
    assert max(json.loads(improved.stdout)["peak_memory"]) <= 2


def test_what_is_wrong_is_said_before_a_planner_starts(headway: Run, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\x89PNG")
    picture = str(tmp_path / "picture")
    for arguments, said in (
        (("--placement", picture), "picture is no text in UTF-8"),
        (("--placement", "V", "--beside", picture), "picture is no text in UTF-8"),
        (("check", picture, "--times", "F=1"), "picture is no text in UTF-8"),
        (("--placement", "Q"), "There is no placement 'Q'"),
        (("--placement", "M", "--schedule", "fast"), "There is no schedule 'fast'"),
        (("check", "nothing.csv", "--times", "F=1"), "nothing.csv"),
        (("--placement", "V", "--csv", "nowhere/a.csv"), "There is no directory nowhere"),
        ((), "Usage"),
    ):
        found = headway("plan", "schedule", *arguments)
        assert said in found.stdout + found.stderr
        assert "Traceback" not in found.stderr


def test_published_schedules_stand_beside_it(report: ScheduleReport) -> None:
    compared = {each.method: each for each in report.compared}
    assert compared["1f1b"].makespan == report.makespan == 33
    assert "holds 8" in compared["gpipe"].why_not
    assert compared["zb-v"].placement == "zigzag"
    assert compared["zb-v"].makespan is not None
    assert compared["zb-v"].makespan < report.makespan
    assert from_document(ScheduleReport, json.loads(json.dumps(to_document(report)))) == report


@pytest.mark.parametrize("width", [80, 120])
def test_the_view_is_whole_in_a_narrow_terminal(report: ScheduleReport, width: int) -> None:
    console = Console(width=width, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(schedule_view(report), highlight=False)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert "makespan 33, which is the shortest" in text
    assert "\n  0 0123  " in text


@pytest.mark.parametrize(
    ("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.html", b"<!doctype html>")]
)
def test_a_schedule_is_drawn(report: ScheduleReport, tmp_path: Path, name: str, begins: bytes) -> None:
    draw_schedule(report, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    assert content.startswith(begins)
    if name == "a.html":
        assert content.count(b"<rect class='run'") == len(report.schedule.runs)
        assert b"F3 (forward), micro-batch 7, device 3" in content


def test_a_trace_has_each_run_once(report: ScheduleReport) -> None:
    events = json.loads(chrome_trace(report.schedule, microseconds=1e6))["traceEvents"]
    runs = [each for each in events if each["ph"] == "X"]
    assert len(runs) == len(report.schedule.runs)
    assert max(each["ts"] + each["dur"] for each in runs) == report.makespan * 1e6


def test_a_training_plan_is_scheduled(headway: Run, tmp_path: Path) -> None:
    write_plan(TRAINING, tmp_path / "plan.yaml")
    arguments = ("--placement", str(tmp_path / "plan.yaml"), "--json", "--state-dir", str(tmp_path / "state"))
    found = headway("plan", "schedule", *arguments)
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["num_micro_batches"] == TRAINING.num_micro_batches
    assert document["lower_bound"] == pytest.approx(max(each.forward_s + each.backward_s for each in TRAINING.stages))


def test_a_csv_of_ones_own_stands_beside_it(tmp_path: Path) -> None:
    """ZB-V as torch has it, on the devices of a V: each has two half stages."""
    zigzag = named_placement("zigzag", 2, ShapeOptions(forward=0.5, backward=1, splits_backward=True, chunks=2))
    (tmp_path / "mine.csv").write_text(torch_csv(predefined("zb-v", zigzag, 6)))
    placement = named_placement("V", 2, ShapeOptions(backward=2))
    given = read_beside(tmp_path / "mine.csv", placement)
    search = search_of(placement, 6, action=ScheduleAction.COMPARE, beside=(given,))
    mine, *published = answer(search, placement, bool).compared
    by_name = {each.method: each for each in published}
    assert (mine.method, mine.makespan) == ("mine.csv", by_name["zb-v"].makespan)
    assert mine.peak_memory == by_name["zb-v"].peak_memory
    with pytest.raises(InvalidArgumentError, match="is for 2 ranks, and V for 4 devices"):
        read_beside(tmp_path / "mine.csv", named_placement("V", 4, ShapeOptions()))
    other = search_of(placement, 8, action=ScheduleAction.COMPARE, beside=(given,))
    assert "6 micro-batches" in answer(other, placement, bool).compared[0].why_not


@pytest.mark.parametrize("name", ["a", "a.csv", "a.json"])
@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000], ids=["binary", "deep"])
def test_a_file_of_another_kind_is_refused_by_name(tmp_path: Path, name: str, content: bytes) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    placement = named_placement("V", 2, ShapeOptions())
    with pytest.raises(InvalidArgumentError, match=re.escape(str(file))):
        find_placement(str(file), num_devices=None, options=ShapeOptions(), memory=None)
    with pytest.raises(InvalidArgumentError, match=re.escape(str(file))):
        given_search(file, ScheduleAction.CHECK, times="F=1,B=1", memory=None)
    with pytest.raises(InvalidArgumentError, match=re.escape(str(file))):
        read_beside(file, placement)


def test_the_report_has_phases_and_programs() -> None:
    placement = named_placement("V", 2, ShapeOptions(backward=2))
    report = answer(search_of(placement, 6), placement, bool)
    assert report.repetend is not None
    tasks = len(placement.tasks)
    inside = tasks * (6 - report.repetend_micro_batches + 1)
    assert len(report.warmup) + len(report.cooldown) == tasks * 6 - inside
    assert len(report.warmup) == sum(report.repetend.indices)
    first, last = report.programs
    assert first[:2] == ("F0 0", "send F0 0 to 1")
    assert last[0] == "receive F0 0 from 0"
    assert sum(line.startswith("send") for line in first) == sum(line.startswith("receive") for line in last) == 6
