"""bfloat16 with float32 masters: what casts are where, and that a pipeline learns what float32 does, nearly."""

from dataclasses import dataclass, replace

import pytest
import torch

from headway.core.execution.certifier import certify
from headway.core.execution.execution import Execution
from headway.core.execution.mixed import NARROW, WIDE, in_bfloat16, with_casts
from headway.core.execution.sharded import unshared_operators
from headway.core.program import Program
from headway.core.training_job import OptimizerSettings
from headway.core.training_run import CHECKPOINTS_DIRECTORY
from headway.programs.module import build_module
from headway.train.checkpoint import Checkpoints
from tests.train.models import Gpt, gpt_stage, inputs
from tests.train.plans import planned_stages
from tests.train.runs import Captured, captured, execution_of, stages_of, train_in_threads, write_run
from tests.train.sliced import pipeline


@pytest.fixture(scope="module")
def step() -> Captured:
    return captured(Gpt(), (2,), torch.float32)


@pytest.fixture(scope="module")
def mixed(step: Captured) -> Captured:
    return replace(step, programs={2: in_bfloat16(step.programs[2])})


def _chain(step: Captured, *, is_mixed: bool) -> Execution:
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


ADAMW, SGD = OptimizerSettings(rate=3e-3, clip=0.5), OptimizerSettings(name="sgd", rate=0.05)


def _sharded(step: Captured) -> tuple[Captured, Execution]:
    """Two ranks that share operators, and parameters and the optimizer's state with them."""
    stages, successors = planned_stages(step, ["mesh: 1x2, axes: [any, model], zero: 1"], micro_batches=4)
    mixed = replace(step, programs={2: in_bfloat16(step.programs[2])})
    given = with_casts(stages, mixed.programs[2])
    whole = {name for _, name in unshared_operators(mixed.programs[2], given, 2)}
    assert not any("mm" in name for name in whole), "products of what was cast are shared too"
    return mixed, execution_of(mixed, list(given), successors=successors)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A run with its losses and the weights of its checkpoint."""

    execution: Execution
    losses: list[float]
    state: dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def runs(step: Captured, mixed: Captured, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """Trained: a pipeline in float32 and in bfloat16 with each optimizer, and others in bfloat16 by SGD."""
    narrow, wide = (mixed, _chain(mixed, is_mixed=True)), (step, _chain(step, is_mixed=False))
    cases = {
        "narrow": (*narrow, ADAMW),
        "wide": (*wide, ADAMW),
        "wide by sgd": (*wide, SGD),
        "sharded": (*_sharded(step), SGD),
        "slices": (*pipeline(step, [(0,), (1,)], (3, 2, 1), method="1f1b", is_mixed=True), SGD),
    }
    base = tmp_path_factory.mktemp("mixed")
    found = {}
    for name, (captured_step, execution, settings) in cases.items():
        assert certify(execution).faults == ()
        directory = base / name.replace(" ", "-")
        losses = train_in_threads(write_run(directory, captured_step, execution, optimizer=settings))
        checkpoint = Checkpoints(directory / CHECKPOINTS_DIRECTORY, keep=1).latest()
        assert checkpoint is not None
        found[name] = Trained(execution=execution, losses=losses, state=checkpoint.state())
    return found


@pytest.mark.parametrize(
    ("name", "reference"), [("narrow", "wide"), ("sharded", "wide by sgd"), ("slices", "wide by sgd")]
)
def test_a_pipeline_in_bfloat16_learns_and_keeps_float32(
    name: str, reference: str, step: Captured, runs: dict[str, Trained]
) -> None:
    """By SGD masters are the first weights less the sum of all gradients, so that they differ from float32's by the
    gradients' error; added up in bfloat16, they would differ by more than they changed."""
    sent = {action.dtype for each in runs[name].execution.ranks for action in each.actions if action.dtype}
    assert (NARROW in sent) == (name != "sharded"), "one stage sends nothing"
    state, wanted = runs[name].state, runs[reference].state
    assert runs[name].losses == pytest.approx(runs[reference].losses, rel=2e-2)
    assert runs[name].losses != runs[reference].losses
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    assert any(not torch.equal(tensor, tensor.bfloat16().float()) for tensor in state.values()), "masters, not weights"
    if name != "narrow":
        first = dict(step.model.named_parameters())
        errors = [(state[key] - wanted[key]).norm() / (wanted[key] - first[key]).norm() for key in wanted]
        assert max(errors) < 0.1
