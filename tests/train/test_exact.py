"""What pipelines learn is what one process learns: losses and weights after 20 steps, in float64."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors import safe_open
from torch import nn

from headway.core.execution.certifier import certify
from headway.core.execution.execution import Execution
from headway.core.execution.orders import scheduled_orders
from headway.core.pipeline_shapes import ShapeOptions, named_placement
from headway.core.training_job import OptimizerSettings
from headway.core.training_run import CHECKPOINTS_DIRECTORY
from headway.planner.schedule.predefined.methods import predefined
from headway.train.checkpoint import Checkpoints
from headway.train.setup import read_setup
from tests.train.models import Branches, Gpt, branch_stage, gpt_stage
from tests.train.plans import planned
from tests.train.runs import (
    BATCH,
    Captured,
    captured,
    data_of,
    difference,
    execution_of,
    stages_of,
    train_alone,
    write_run,
)

ADAMW = OptimizerSettings(rate=3e-3, weight_decay=0.01, clip=0.5)
SGD = OptimizerSettings(name="sgd", rate=0.05)
CHAIN = [(1,), ()], [(1,), (2,), ()]


def _chain(step: Captured, num_stages: int, **options: object) -> Execution:
    recomputes = bool(options.pop("recomputes", False))
    stages = stages_of(
        step.graph,
        lambda module: gpt_stage(module, num_stages),
        [(number,) for number in range(num_stages)],
        [2] * num_stages,
        recomputes=recomputes,
    )
    return execution_of(step, stages, successors=CHAIN[num_stages - 2], **options)  # type: ignore[arg-type]


def _scheduled(step: Captured, shape: str, method: str, num_stages: int) -> Execution:
    placement = named_placement(shape, 2, ShapeOptions(backward=2, splits_backward=True))
    orders = scheduled_orders(predefined(method, placement, BATCH // 2))
    owners = {turn.stage: rank for rank, order in enumerate(orders) for turn in order}
    stages = stages_of(
        step.graph,
        lambda module: gpt_stage(module, num_stages),
        [(owners[number],) for number in range(num_stages)],
        [2] * num_stages,
    )
    return execution_of(step, stages, successors=[], splits=True, orders=orders)


def _uneven_replicas(step: Captured, *, zero: int = 0) -> Execution:
    """The first stage on two ranks, each with a part of a micro-batch; the second one has micro-batches of its own."""
    stages = stages_of(step.graph, lambda module: gpt_stage(module, 2), [(0, 1), (2,)], [8, 2])
    given = [replace(stage, zero=zero) for stage in stages]
    return execution_of(step, given, successors=[(1,), ()])


def _branches(step: Captured) -> Execution:
    stages = stages_of(step.graph, branch_stage, [(0,), (1,), (2,)], [2, 8, 4])
    return execution_of(step, stages, successors=[(2,), (2,), ()])


def _two_meshes(step: Captured) -> Execution:
    return planned(step, "mesh: 2x1, axes: [data, any]", "mesh: 1x2, axes: [any, model], recompute: true")


CASES: dict[
    str, tuple[Callable[[], nn.Module], tuple[int, ...], Callable[[Captured], Execution], OptimizerSettings]
] = {
    "gpipe": (Gpt, (2,), lambda step: _chain(step, 2, method="gpipe"), ADAMW),
    "1f1b of three": (Gpt, (2,), lambda step: _chain(step, 3), ADAMW),
    "recomputing": (Gpt, (2,), lambda step: _chain(step, 2, recomputes=True, splits=True), SGD),
    "zero bubble H1": (Gpt, (2,), lambda step: _scheduled(step, "V", "zb-h1", 2), SGD),
    "zero bubble V": (Gpt, (2,), lambda step: _scheduled(step, "zigzag", "zb-v", 4), ADAMW),
    "replicas": (Gpt, (2, 4), _uneven_replicas, SGD),
    "padded": (Gpt, (2, 4), _uneven_replicas, ADAMW),
    "shared updates": (Gpt, (2, 4), lambda step: _uneven_replicas(step, zero=1), ADAMW),
    "shared operators": (Gpt, (2, 4), lambda step: planned(step, "mesh: 2x2, axes: [data, model], zero: 1"), ADAMW),
    "two meshes": (Gpt, (2, 4), _two_meshes, ADAMW),
    "branches": (Branches, (2, 4, 8), _branches, ADAMW),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, nn.Module]]:
    """All cases, trained."""
    base, found = tmp_path_factory.mktemp("runs"), {}
    steps: dict[tuple[object, tuple[int, ...]], Captured] = {}
    for name, (make, counts, compile_, settings) in CASES.items():
        if (make, counts) not in steps:
            steps[make, counts] = captured(make(), counts)
        step = steps[make, counts]
        execution = compile_(step)
        assert certify(execution).faults == ()
        directory = base / name.replace(" ", "-")
        write_run(directory, step, execution, optimizer=settings, padded=name == "padded")
        found[name] = directory, step.model
    script = Path(__file__).parent / "train_all.py"
    subprocess.run([sys.executable, str(script), *(str(path) for path, _ in found.values())], check=True, timeout=500)
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_pipeline_learns_what_one_process_learns(name: str, runs: dict[str, tuple[Path, nn.Module]]) -> None:
    directory, model = runs[name]
    told = json.loads((directory / "told.json").read_text())
    assert (told["error"], told["restarts"]) == ("", [])
    losses, weights = train_alone(model, data_of(directory), CASES[name][3])
    assert [report["loss"] for report in told["reports"]] == pytest.approx(losses, rel=1e-10)
    checkpoint = Checkpoints(directory / CHECKPOINTS_DIRECTORY, keep=1).latest()
    assert checkpoint is not None
    assert difference(checkpoint.state(), weights) < 1e-10
    assert losses[-1] < losses[0]


def test_ranks_that_share_updates_hold_a_part_of_the_optimizers_state(
    runs: dict[str, tuple[Path, nn.Module]],
) -> None:
    """Half of it for two ranks; the tied embedding, which all three hold, by thirds."""
    shared, whole = (read_setup(runs[name][0]).execution.stages for name in ("shared updates", "padded"))
    directory, model = runs["shared updates"]
    tied = sum(t.numel() for name, t in model.named_parameters() if name == "tokens.weight")
    own = sum(t.numel() for name, t in model.named_parameters() if name in shared[0].parameters) - tied
    assert whole[0].state_bytes == 4 * 8 * (own + tied)
    assert shared[0].state_bytes == pytest.approx(8 * (3 * own + (2 + 2 / 3) * tied), rel=1e-3)
    (path,) = (directory / CHECKPOINTS_DIRECTORY).glob("step-*20/")
    with safe_open(path / "optimizer-00001.safetensors", "pt") as file:
        sizes = {name: file.get_tensor(name).numel() for name in file.keys()}  # noqa: SIM118 - no mapping
    assert sum(size for name, size in sizes.items() if name.startswith("exp_avg/")) == pytest.approx(
        own / 2 + tied / 3, abs=2
    )
