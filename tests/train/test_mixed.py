"""bfloat16 with float32 masters: what casts are where, and that a pipeline learns what float32 does, nearly."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headway.core.execution.certifier import certify
from headway.core.execution.execution import Execution
from headway.core.execution.mixed import NARROW, WIDE, in_bfloat16, with_casts
from headway.core.program import Program
from headway.core.training_job import OptimizerSettings
from headway.core.training_run import CHECKPOINTS_DIRECTORY
from headway.programs.module import build_module
from headway.train.checkpoint import Checkpoints
from tests.train.models import Gpt, gpt_stage, inputs
from tests.train.runs import Captured, captured, execution_of, stages_of, write_run


@pytest.fixture(scope="module")
def step() -> Captured:
    return captured(Gpt(), (2,), torch.float32)


@pytest.fixture(scope="module")
def mixed(step: Captured) -> Captured:
    return replace(step, programs={2: in_bfloat16(step.programs[2])})


def _execution(step: Captured, *, is_mixed: bool) -> Execution:
    stages = stages_of(step.graph, lambda module: gpt_stage(module, 2), [(0,), (1,)], [2, 2])
    given = with_casts(stages, step.programs[2]) if is_mixed else stages
    return execution_of(step, list(given), successors=[(1,), ()])


def _outputs(program: Program, model: torch.nn.Module) -> list[torch.Tensor]:
    """The loss, and gradients in the order of the program's."""
    given = {**dict(model.named_parameters()), **inputs(model, 2)}
    dtypes = [getattr(torch, value.dtype) for value in program.inputs]
    values = [given[name].detach().to(dtype) for name, dtype in zip(program.names, dtypes, strict=True)]
    found: list[torch.Tensor] = list(build_module(program, torch.device("cpu"))(*values))
    return found[:1] + found[len(program.results) :]


def test_what_is_said_of_values_is_what_operators_give(mixed: Captured) -> None:
    """Every operator's result has the dtype that the cast program says."""
    program = mixed.programs[2]
    numbers = range(len(program.inputs), len(program.inputs) + len(program.instructions))
    whole = replace(program, results=tuple(n for n in numbers if program.value(n).dtype != ""), gradients={})
    given = {**dict(mixed.model.named_parameters()), **inputs(mixed.model, 2)}
    dtypes = [getattr(torch, value.dtype) for value in program.inputs]
    values = [given[name].detach().to(dtype) for name, dtype in zip(program.names, dtypes, strict=True)]
    results = build_module(whole, torch.device("cpu"))(*values)
    for number, result in zip(whole.results, results, strict=True):
        tensor = result[0] if isinstance(result, (tuple, list)) else result
        name = program.name_of(number)
        assert (name, str(tensor.dtype)) == (name, f"torch.{program.value(number).dtype}")
    targets = {each.target: each.results[0].dtype for each in program.instructions}
    assert (targets["aten.addmm.default"], targets["aten._log_softmax.default"]) == (NARROW, WIDE)


def test_gradients_are_those_of_float32_to_the_bits_that_bfloat16_has(step: Captured, mixed: Captured) -> None:
    wanted, found = _outputs(step.programs[2], step.model), _outputs(mixed.programs[2], step.model)
    assert found[0].dtype == torch.float32
    assert float(found[0]) == pytest.approx(float(wanted[0]), rel=1e-2)
    errors = [float((f.float() - w).norm() / w.norm()) for f, w in zip(found[1:], wanted[1:], strict=True)]
    assert max(errors) < 0.05
    assert max(errors) > 1e-4, "it did compute in bfloat16"


def test_a_pipeline_in_bfloat16_learns_and_keeps_float32(step: Captured, mixed: Captured, tmp_path: Path) -> None:
    settings = OptimizerSettings(rate=3e-3, clip=0.5)
    narrow, wide = _execution(mixed, is_mixed=True), _execution(step, is_mixed=False)
    assert certify(narrow).faults == ()
    sent = [{a.dtype for each in e.ranks for a in each.actions if a.dtype} for e in (narrow, wide)]
    assert (NARROW in sent[0], sent[1]) == (True, {WIDE})
    write_run(tmp_path / "narrow", mixed, narrow, optimizer=settings)
    write_run(tmp_path / "wide", step, wide, optimizer=settings)
    script = Path(__file__).parent / "train_all.py"
    directories = [str(tmp_path / name) for name in ("narrow", "wide")]
    subprocess.run([sys.executable, str(script), *directories], check=True, timeout=500)
    told = [json.loads((tmp_path / name / "told.json").read_text()) for name in ("narrow", "wide")]
    assert [each["error"] for each in told] == ["", ""]
    losses = [[report["loss"] for report in each["reports"]] for each in told]
    assert losses[0] == pytest.approx(losses[1], rel=2e-2)
    assert losses[0] != losses[1]
    checkpoint = Checkpoints(tmp_path / "narrow" / CHECKPOINTS_DIRECTORY, keep=1).latest()
    assert checkpoint is not None
    state = checkpoint.state()
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    assert any(not torch.equal(tensor, tensor.bfloat16().float()) for tensor in state.values()), "masters, not weights"
