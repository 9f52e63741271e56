"""Ranks that share gradients, or parameters too (ZeRO stages 2 and 3): they learn what one process learns, hold what
was certified, and their checkpoints are those of any other run."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from headway.core.codec import to_document
from headway.core.execution.certifier import certify
from headway.core.execution.execution import RUNS, ActionKind, Execution
from headway.core.execution.mixed import in_bfloat16, with_casts
from headway.core.execution.simulator import ExecutionTimes, simulate
from headway.core.execution.zero import GATHER_PARAMETER, SCATTER_GRADIENT
from headway.core.training_job import DataSettings, OptimizerSettings, ValidationSettings
from headway.core.training_run import CHECKPOINTS_DIRECTORY, RUN_FILE, TrainingRun
from headway.train.checkpoint import Checkpoints
from headway.train.parts import stage_cuts
from headway.train.setup import read_setup
from headway.train.trainer import Trainer
from tests.train.models import Branches, Gpt, branch_stage, gpt_stage
from tests.train.plans import planned, planned_stages
from tests.train.runs import (
    BATCH,
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
from tests.train.sliced import pipeline
from tests.train.test_exact import ADAMW, SGD


@pytest.fixture(scope="module")
def gpt() -> Captured:
    return captured(Gpt(), (2, 4))


def _copies(step: Captured, zero: int, **options: bool) -> Execution:
    """Two stages, the first on two ranks; the embedding is the output matrix too, on all three."""
    stages = stages_of(step.graph, lambda module: gpt_stage(module, 2), [(0, 1), (2,)], [8, 2], **options)
    return execution_of(step, [replace(stage, zero=zero) for stage in stages], successors=[(1,), ()])


def _branches(step: Captured, zero: int) -> Execution:
    """The output layer's bias has one element, for two ranks."""
    stages = stages_of(step.graph, branch_stage, [(0,), (1,), (2, 3)], [2, 8, 4])
    return execution_of(step, [replace(stage, zero=zero) for stage in stages], successors=[(2,), (2,), ()])


def _split(step: Captured) -> Execution:
    stages = stages_of(step.graph, lambda module: gpt_stage(module, 2), [(0, 1), (2, 3)], [4, 4])
    given = [replace(stage, zero=3) for stage in stages]
    return execution_of(step, given, successors=[(1,), ()], splits=True)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[Captured], Execution], OptimizerSettings]] = {
    "copies, 2": (Gpt, lambda step: _copies(step, 2), ADAMW),
    "copies, 3, recomputing": (Gpt, lambda step: _copies(step, 3, recomputes=True), SGD),
    "copies, 3, gradients apart": (Gpt, _split, ADAMW),
    "fewer elements than ranks, 3": (Branches, lambda step: _branches(step, 3), ADAMW),
    "shared operators, 3": (Gpt, lambda step: planned(step, "mesh: 2x2, axes: [data, model], zero: 3"), ADAMW),
    "two meshes, 2 and 3": (
        Gpt,
        lambda step: planned(
            step, "mesh: 2x1, axes: [data, any], zero: 3", "mesh: 1x2, axes: [any, model], zero: 2, recompute: true"
        ),
        ADAMW,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Trained:
    step: Captured
    directory: Path
    losses: list[float]

    def learns_what_one_process_learns(self, settings: OptimizerSettings) -> None:
        losses, weights = train_alone(self.step.model, data_of(self.directory), settings)
        assert self.losses == pytest.approx(losses, rel=1e-10)
        assert difference(_state(self.directory), weights) < 1e-10


def _trained(directory: Path, step: Captured, execution: Execution, settings: OptimizerSettings) -> Trained:
    assert certify(execution).faults == ()
    write_run(directory, step, execution, optimizer=settings)
    return Trained(step=step, directory=directory, losses=train_in_threads(directory))


def _state(directory: Path) -> dict[str, Tensor]:
    checkpoint = Checkpoints(directory / CHECKPOINTS_DIRECTORY, keep=1).latest()
    assert checkpoint is not None
    return checkpoint.state()


@pytest.mark.parametrize("name", CASES)
def test_ranks_that_share_more_than_updates_learn_what_one_process_learns(
    name: str, gpt: Captured, tmp_path: Path
) -> None:
    make, compile_, settings = CASES[name]
    step = gpt if make is Gpt else captured(make(), (2, 4, 8))
    _trained(tmp_path / "run", step, compile_(step), settings).learns_what_one_process_learns(settings)


def test_slices_of_tokens_gather_parameters_too(gpt: Captured, tmp_path: Path) -> None:
    step = replace(gpt, programs={2: gpt.programs[2]})
    sliced, execution = pipeline(step, [(0, 1), (2, 3)], (3, 2, 1), method="1f1b", zero=3)
    assert all(part.gathered for part in execution.parts)
    trained = _trained(tmp_path / "run", sliced, execution, ADAMW)
    replace(trained, step=step).learns_what_one_process_learns(ADAMW)


def _held_bytes(trainer: Trainer) -> int:
    """Of a rank's parameters, gradients and the optimizer's state."""
    tensors = [*trainer._masters.values(), *trainer._gradients.by_name.values()]
    tensors += [each for kept in trainer._optimizer._kept.values() for each in kept]
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors if each.numel()}
    return sum(storages.values())


def test_a_rank_holds_what_its_zero_stage_says(gpt: Captured, tmp_path: Path) -> None:
    """Of AdamW's four copies of a parameter on two ranks: 4, then 3, 2.5 and 2; and as little more than that at the
    peak as the largest parameter and its gradient need."""
    execution = {zero: _one(gpt, zero) for zero in range(4)}
    states = {zero: each.stages[0].state_bytes for zero, each in execution.items()}
    assert [states[zero] / states[0] for zero in range(4)] == pytest.approx([1, 3 / 4, 2.5 / 4, 2 / 4], rel=1e-2)
    peaks = [max(certify(execution[zero]).peak_bytes) for zero in range(4)]
    assert peaks == sorted(peaks, reverse=True)
    for zero in range(4):
        directory = write_run(tmp_path / str(zero), gpt, execution[zero], optimizer=ADAMW)
        setup, store = read_setup(directory), dist.HashStore()
        with ThreadPoolExecutor(2) as pool:
            made = [pool.submit(Trainer, setup, rank, store=store, should_stop=lambda: False) for rank in range(2)]
        assert [_held_bytes(each.result()) for each in made] == pytest.approx([states[zero]] * 2, rel=1e-2)


def test_a_parameter_is_there_from_its_first_reader_to_its_last(gpt: Captured) -> None:
    """What the part of a stage with all blocks needs beside its slots is less than its parameters are."""
    whole, parts = _one(gpt, 0), _one(gpt, 3)
    cut = stage_cuts(parts, gpt.programs, 0)[0]
    for part, without, local in zip(parts.parts, whole.parts, cut.parts, strict=True):
        targets = [each.target for each in local.cut.program.instructions]
        assert targets.count(GATHER_PARAMETER) == len(part.gathered) > 0
        assert targets.count(SCATTER_GRADIENT) == len(part.scattered) == len(without.gradients)
        sizes = [local.cut.program.inputs[at].num_bytes for at, n in enumerate(local.cut.reads) if n < len(cut.names)]
        assert part.workspace_bytes < without.workspace_bytes + 2 * sum(sizes), "all of them at once"
    text = parts.action_text(next(each for each in parts.ranks[0].actions if each.kind is ActionKind.BACKWARD))
    assert "gathers" in text
    assert f"scatters {len(parts.parts[1].scattered)} gradients" in text


def test_lists_in_which_one_rank_does_not_gather_are_refused(gpt: Captured) -> None:
    execution = _one(gpt, 3)
    assert simulate(execution, ExecutionTimes(parts=(1.0, 2.0))).iteration_s == 3.0 * BATCH / 4
    first, second = execution.ranks
    runs = [at for at, action in enumerate(second.actions) if action.kind in RUNS]
    actions = list(second.actions)
    actions[runs[0]] = replace(actions[runs[0]], first=actions[runs[0]].first + 4)
    faults = " ".join(certify(replace(execution, ranks=(first, replace(second, actions=tuple(actions))))).faults)
    assert "FORWARD of stage 0 runs" in faults
    part = execution.parts[1]
    partly = replace(part, scattered=part.scattered[1:])
    later = replace(part, gathered=("nobody's",))
    for wrong, said in ((partly, f"rank 0 never adds up the gradient of {part.scattered[0]}"), (later, "nobody's")):
        assert said in " ".join(certify(replace(execution, parts=(execution.parts[0], wrong))).faults)


def test_a_run_goes_on_with_any_zero_stage(gpt: Captured, tmp_path: Path) -> None:
    """Four steps with one, the others with another: the weights of a run that was not interrupted."""
    trained = _trained(tmp_path / "whole", gpt, _one(gpt, 0), ADAMW)
    for before, after in ((3, 1), (1, 3), (2, 3)):
        directory = write_run(tmp_path / f"{before}-{after}", gpt, _one(gpt, before), optimizer=ADAMW, steps=4)
        losses = train_in_threads(directory)
        run = read_setup(directory)
        changed = replace(run.job, steps=len(trained.losses))
        programs = {str(count): program for count, program in run.programs.items()}
        document = to_document(TrainingRun(job=changed, execution=_one(gpt, after), programs=programs))
        (directory / RUN_FILE).write_text(json.dumps(document))
        losses += train_in_threads(directory)
        assert losses == pytest.approx(trained.losses, rel=1e-10)
        assert difference(_state(directory), _state(trained.directory)) < 1e-10


def test_bfloat16_adds_up_scattered_gradients_in_float32(tmp_path: Path) -> None:
    """With shared operators, too: weights differ from float32's by their gradients' error."""
    step = captured(Gpt(), (2,), torch.float32)
    mixed = replace(step, programs={2: in_bfloat16(step.programs[2])})
    stages, successors = planned_stages(step, ["mesh: 2x2, axes: [data, model], zero: 3"])
    given = list(with_casts(stages, mixed.programs[2]))
    found = {}
    for name, (which, specs) in {"narrow": (mixed, given), "wide": (step, list(stages))}.items():
        validation = ValidationSettings(data=DataSettings(synthetic=True), every=10, batches=1)
        directory = tmp_path / name
        write_run(
            directory, which, execution_of(which, specs, successors=successors), optimizer=SGD, validation=validation
        )
        found[name] = train_in_threads(directory), _state(directory)
    (losses, state), (wanted, weights) = found["narrow"], found["wide"]
    assert losses == pytest.approx(wanted, rel=2e-2)
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    first = dict(step.model.named_parameters())
    assert max((state[n] - weights[n]).norm() / (weights[n] - first[n]).norm() for n in weights) < 0.1


def _one(step: Captured, zero: int) -> Execution:
    """One stage on two ranks."""
    (stage,) = stages_of(step.graph, lambda _: 0, [(0, 1)], [4])
    return execution_of(step, [replace(stage, zero=zero)], successors=[()])
