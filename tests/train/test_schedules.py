"""What searched schedules of any shape learn is what one process learns, and so is what a run learns that goes on by
another plan; ranks are threads here."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError
from headway.core.execution.certifier import certify
from headway.core.execution.execution import Execution
from headway.core.execution.orders import scheduled_orders
from headway.core.pipeline_shapes import ShapeOptions, named_placement
from headway.core.schedule import TaskKind
from headway.core.training_job import OptimizerSettings
from headway.core.training_run import CHECKPOINTS_DIRECTORY, RUN_FILE, TrainingRun
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.search import search_schedule
from headway.train.checkpoint import Checkpoints
from headway.train.setup import read_setup
from tests.train.models import Flava, Gpt, Mmt, Mt5, Towers, gpt_stage
from tests.train.runs import (
    BATCH,
    NUM_STEPS,
    Captured,
    captured,
    data_of,
    difference,
    execution_of,
    stages_of,
    train_alone,
    train_in_threads,
    write_run,
)
from tests.train.test_exact import ADAMW, SGD

_MICRO_BATCH = 4
_MODES = {"encoders.0": 0, "encoders.1": 1, "encoders.2": 2}
_SHAPES: dict[str, tuple[Callable[[], nn.Module], Mapping[str, int], int]] = {
    "M": (Gpt, {"tokens": 0, "positions": 0, "dropout": 0, "blocks.0": 1}, 2),
    "NN": (Mt5, {"encode": 0, "encoder": 1, "decode": 2}, 3),
    "K": (Flava, _MODES, 2),
    "X": (Towers, {"encoders.0.0": 0, "encoders.0.1": 1, "encoders.1.0": 2}, 3),
}
"""By shape a model, the stages of its modules, and the stage of all others; on two devices."""


def _stage_of(places: Mapping[str, int], other: int) -> Callable[[str], int]:
    def stage_of(module: str) -> int:
        return next((n for name, n in places.items() if module == name or module.startswith(f"{name}.")), other)

    return stage_of


def _learns(directory: Path, step: Captured, execution: Execution, settings: OptimizerSettings) -> list[float]:
    """Trains it, compares losses with those of one process, and gives them."""
    assert certify(execution).faults == ()
    losses = train_in_threads(write_run(directory, step, execution, optimizer=settings))
    wanted, weights = train_alone(step.model, data_of(directory), settings)
    assert losses == pytest.approx(wanted, rel=1e-10)
    assert difference(_weights(directory), weights) < 1e-10
    return losses


def _weights(directory: Path) -> dict[str, torch.Tensor]:
    checkpoint = Checkpoints(directory / CHECKPOINTS_DIRECTORY, keep=1).latest()
    assert checkpoint is not None
    return checkpoint.state()


@pytest.mark.parametrize("shape", _SHAPES)
def test_a_searched_schedule_learns_what_one_process_learns(shape: str, tmp_path: Path) -> None:
    """Stages on all devices have a part of each micro-batch on each of them."""
    make, places, other = _SHAPES[shape]
    placement = named_placement(shape, 2, ShapeOptions(backward=2))
    step = captured(make(), (_MICRO_BATCH // 2, _MICRO_BATCH))
    on = [task.devices for task in placement.tasks if task.kind is TaskKind.FORWARD]
    stages = stages_of(step.graph, _stage_of(places, other), on, [_MICRO_BATCH] * len(on))
    schedule = search_schedule(placement, BATCH // _MICRO_BATCH, Limits(effort=0.1)).schedule
    execution = execution_of(step, stages, successors=[], orders=scheduled_orders(schedule))
    _learns(tmp_path / "run", step, execution, ADAMW)


def test_a_backward_task_that_mirrors_none_is_named() -> None:
    placement = named_placement("K", 2, ShapeOptions())
    tasks = [replace(t, devices=(0, 1)) if t.name == "B1" else t for t in placement.tasks]
    schedule = search_schedule(placement, 1, Limits(effort=0.1)).schedule
    wrong = replace(schedule, placement=replace(placement, tasks=tuple(tasks)))
    with pytest.raises(InvalidArgumentError, match="the backward task B1 mirrors no forward task"):
        scheduled_orders(wrong)


def test_modes_with_sizes_of_their_own_learn_what_one_process_learns(tmp_path: Path) -> None:
    step = captured(Mmt(), (2, 4, 8))
    ranks = [(0,), (1,), (2,), (3,)]
    stages = stages_of(step.graph, _stage_of(_MODES, 3), ranks, [2, 8, 4, 4])
    _learns(tmp_path / "run", step, execution_of(step, stages, successors=[(3,), (3,), (3,), ()]), SGD)


@pytest.fixture(scope="module")
def gpt() -> Captured:
    return captured(Gpt(dropout=0.1), (2,))


def _chain(step: Captured, num_stages: int, **options: object) -> Execution:
    ranks = [(number,) for number in range(num_stages)]
    stages = stages_of(step.graph, lambda module: gpt_stage(module, num_stages), ranks, [2] * num_stages)
    successors = [(number + 1,) for number in range(num_stages - 1)] + [()]
    return execution_of(step, stages, successors=successors, **options)  # type: ignore[arg-type]


def test_dropout_is_the_same_under_any_schedule(gpt: Captured, tmp_path: Path) -> None:
    runs = {
        name: train_in_threads(write_run(tmp_path / name, gpt, _chain(gpt, 2, method=name), optimizer=SGD))
        for name in ("gpipe", "1f1b")
    }
    assert runs["gpipe"] == runs["1f1b"]
    first, second = (_weights(tmp_path / name) for name in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)
    without, _ = train_alone(Gpt().double(), data_of(tmp_path / "gpipe"), SGD, 1)
    assert abs(runs["gpipe"][0] - without[0]) > 1e-6, "something was dropped"


def test_a_run_goes_on_by_another_plan_on_more_workers(tmp_path: Path) -> None:
    """Ten steps on two workers, ten more on three, with AdamW's state between them."""
    step = captured(Gpt(), (2,))
    half = NUM_STEPS // 2
    directory = write_run(tmp_path / "run", step, _chain(step, 2), optimizer=ADAMW, steps=half)
    losses = train_in_threads(directory)
    job = replace(read_setup(directory).job, steps=NUM_STEPS, workers=3)
    programs = {str(count): program for count, program in step.programs.items()}
    again = TrainingRun(job=job, execution=_chain(step, 3, method="gpipe"), programs=programs)
    (directory / RUN_FILE).write_text(json.dumps(to_document(again)))
    losses += train_in_threads(directory)
    wanted, weights = train_alone(step.model, data_of(directory), ADAMW)
    assert len(losses) == NUM_STEPS
    assert losses == pytest.approx(wanted, rel=1e-10)
    assert difference(_weights(directory), weights) < 1e-10


@pytest.mark.parametrize("settings", [ADAMW, SGD], ids=["adamw", "sgd"])
def test_float32_learns_what_one_process_learns_in_float32(settings: OptimizerSettings, tmp_path: Path) -> None:
    """AdamW's weights say nothing: it makes steps of one size of gradients that are rounding alone."""
    step = captured(Gpt(), (2,), torch.float32)
    directory = write_run(tmp_path / "run", step, _chain(step, 2), optimizer=settings)
    losses = train_in_threads(directory)
    wanted, weights = train_alone(step.model, data_of(directory), settings)
    assert losses == pytest.approx(wanted, rel=1e-5)
    if settings is SGD:
        assert difference(_weights(directory), weights) < 1e-5
