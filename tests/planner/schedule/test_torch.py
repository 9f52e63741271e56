"""torch.distributed.pipelining runs our schedules unmodified, and we read its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.pipelining import schedules as torch_schedules

from headway.core.errors import HeadwayError
from headway.core.exports.torch_pipelining import read_torch_csv, torch_csv
from headway.core.pipeline_shapes import ShapeOptions, named_placement
from headway.core.schedule import Schedule
from headway.core.schedule_search import ScheduleAction, search_of
from headway.core.stage_chain import stage_chain
from headway.planner.jobs.schedule import answer
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.predefined.orders import dualpipe_v, zb_v
from headway.planner.schedule.search import search_schedule

RANK = Path(__file__).parent / "torch_rank.py"
TIMES = {"F": (1.0,), "I": (1.0,), "W": (1.0,), "B": (2.0,)}


def _run(schedule: Schedule, directory: Path) -> list[dict[str, object]]:
    """Runs the CSV on one process for each rank; each says how far its gradients are from those of one process."""
    (directory / "schedule.csv").write_text(torch_csv(schedule))
    owners, world = [stage.device for stage in stage_chain(schedule.placement)], schedule.placement.num_devices
    rest = [str(world), json.dumps(owners), str(schedule.num_micro_batches), str(directory)]
    subprocess.run([sys.executable, str(RANK), *rest], check=True, timeout=170)
    return [json.loads((directory / f"rank{rank}.json").read_text()) for rank in range(world)]


@pytest.mark.parametrize(
    ("shape", "num_devices", "splits"),
    [("zigzag", 2, False), ("V", 4, True)],
    ids=["V of two chunks", "split backward"],
)
def test_torch_runs_a_searched_schedule_unmodified(shape: str, num_devices: int, splits: bool, tmp_path: Path) -> None:
    placement = named_placement(shape, num_devices, ShapeOptions(backward=2, splits_backward=splits))
    schedule = search_schedule(placement, 6, Limits()).schedule
    assert _run(schedule, tmp_path) == [{"worst": pytest.approx(0, abs=1e-6), "lacking": []}] * num_devices


def test_a_placement_with_a_task_on_all_devices_is_refused_by_its_name() -> None:
    schedule = search_schedule(named_placement("M", 4, ShapeOptions()), 6, Limits()).schedule
    with pytest.raises(HeadwayError, match="task F0 is on 4 devices"):
        torch_csv(schedule)


def _torch_rows(name: str, world: int, num_micro_batches: int) -> list[list[object]]:
    kind = torch_schedules.get_schedule_class(name)
    rows = []
    for rank in range(world):
        made = kind.__new__(kind)
        made.pp_group_size, made._n_microbatches, made.num_stages = world, num_micro_batches, 2 * world
        rows.append([action for action in made._calculate_single_rank_operations(rank) if action is not None])
    return rows


def _torch_text(name: str, world: int, num_micro_batches: int) -> str:
    rows = _torch_rows(name, world, num_micro_batches)
    return "\n".join(",".join(map(str, row)) for row in rows) + "\n"


@pytest.mark.parametrize("num_micro_batches", [8, 11])
@pytest.mark.parametrize(("name", "ours"), [("ZBVZeroBubble", zb_v), ("DualPipeV", dualpipe_v)])
def test_published_schedules_are_torchs_own(name: str, ours: object, num_micro_batches: int) -> None:
    given = read_torch_csv(_torch_text(name, 4, num_micro_batches), file="torch.csv", times=TIMES)
    placement = named_placement("zigzag", 4, ShapeOptions(backward=2, splits_backward=True))
    made = ours(placement, num_micro_batches)  # type: ignore[operator]
    theirs = answer(
        search_of(given.placement, num_micro_batches, action=ScheduleAction.CHECK, orders=given.orders),
        given.placement,
        lambda: False,
    )
    assert theirs.violations == ()
    names = [[(given.placement.tasks[i].name, n) for i, n in order] for order in given.orders]
    assert names == [
        [(placement.tasks[run.task].name, run.micro_batch) for run in runs] for runs in made.runs_by_device
    ]
    assert theirs.makespan == made.makespan


@pytest.mark.parametrize("name", ["ZBVZeroBubble", "DualPipeV"])
def test_two_swapped_entries_are_refused_with_rank_and_step(name: str) -> None:
    rows = [row.split(",") for row in _torch_text(name, 4, 8).splitlines()]
    first, second = rows[2].index("5F0"), rows[2].index("5I0")
    rows[2][first], rows[2][second] = rows[2][second], rows[2][first]
    given = read_torch_csv("\n".join(map(",".join, rows)), file="torch.csv", times=TIMES)
    search = search_of(given.placement, 8, action=ScheduleAction.CHECK, orders=given.orders, places=given.places)
    with pytest.raises(HeadwayError, match=rf"At rank 2, step {first} \(5I0\)"):
        answer(search, given.placement, lambda: False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0F0,0X0\n", "rank 0, step 1: '0X0' is no action"),
        ("0F0,0B0\n0F1,0B1\n", r"rank 1, step 0 \(0F1\): stage 0 is on rank 0 too"),
        ("0F0,0F0,0B0\n", r"rank 0, step 1 \(0F0\) repeats rank 0, step 0"),
        ("0F0,0F1,0B0\n", "lacks 0I1"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(HeadwayError, match=said):
        read_torch_csv(text, file="a.csv", times=TIMES)


def test_what_was_exported_reads_back_as_the_same_schedule() -> None:
    placement = named_placement("zigzag", 4, ShapeOptions(backward=2, splits_backward=True))
    schedule = search_schedule(placement, 8, Limits()).schedule
    given = read_torch_csv(torch_csv(schedule), file="a.csv", times=TIMES)
    search = search_of(given.placement, 8, action=ScheduleAction.CHECK, orders=given.orders)
    checked = answer(search, given.placement, lambda: False)
    assert (checked.makespan, checked.violations) == (schedule.makespan, ())


def test_an_improved_schedule_is_never_longer() -> None:
    text = "0F0,0B0,0F1,0B1,0F2,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"
    given = read_torch_csv(text, file="a.csv", times={"F": (1.0,), "B": (2.0,)}, memory=2)
    options = {"orders": given.orders}
    before, after = (
        answer(search_of(given.placement, 3, action=action, **options), given.placement, lambda: False)
        for action in (ScheduleAction.CHECK, ScheduleAction.IMPROVE)
    )
    assert after.makespan < before.makespan
    assert after.violations == ()
    assert max(after.peak_memory) <= 2
