"""Slices of tokens: a step that is unrolled over them is the whole step, and pipelines of them learn what one process
learns."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.core.capture import CaptureRequest
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.execution.certifier import certify
from headway.core.execution.execution import RUNS, ActionKind, Execution
from headway.core.execution.sharded import unshared_operators
from headway.core.execution.simulator import ExecutionTimes, simulate
from headway.core.token_slices import TokenSlices
from headway.core.training_job import OptimizerSettings
from headway.core.training_run import CHECKPOINTS_DIRECTORY, slice_stages
from headway.profiler.capture.capture import capture
from headway.profiler.zoo.network import make_network
from headway.profiler.zoo.registry import find
from headway.programs.module import build_module
from headway.train.checkpoint import Checkpoints
from headway.train.setup import read_setup
from tests.train.models import SEQ, Gpt, inputs
from tests.train.plans import plan_of_stages
from tests.train.runs import BATCH, Captured, captured, data_of, difference, train_alone, train_in_threads, write_run
from tests.train.sliced import pipeline, sliced_execution, sliced_step
from tests.train.test_exact import ADAMW, SGD


@pytest.mark.parametrize(("name", "slices"), [("llama-70b", (6, 2, 8)), ("gpt3-1b", (1, 15))])
def test_the_unrolled_step_is_the_whole_step(name: str, slices: tuple[int, ...]) -> None:
    """Rotary positions from a table and learned ones, grouped keys, slices of one token: losses and gradients."""
    torch.manual_seed(0)
    model = make_network(find(f"{name}-small"), "cpu").double()
    tokens, targets = torch.randint(64, (2, 2, sum(slices)))
    targets[0, 3:] = -100
    sliced = sliced_step(model, (tokens,), slices, targets)
    state = {**dict(model.named_parameters()), **dict(model.named_buffers()), "tokens": tokens, "targets": targets}
    given = [state[name] for name in sliced.program.names]
    with torch.no_grad():
        results = build_module(sliced.program, torch.device("cpu"))(*given)
    losses, gradients = results[: len(slices)], dict(zip(sliced.program.gradients, results[len(slices) :], strict=True))
    whole = functional.cross_entropy(model(tokens).flatten(0, -2).float(), targets.flatten(), reduction="sum")
    whole.backward()
    assert sliced.sums_losses
    assert float(sum(losses)) == pytest.approx(whole.item(), rel=1e-6)
    wanted = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert gradients.keys() == wanted.keys()
    norm = torch.cat(
        [each.flatten() for each in wanted.values()]
    ).norm()  # that of a key's bias is nothing but rounding
    assert max((gradients[name] - wanted[name]).norm() for name in wanted) < 1e-6 * norm


class Shifted(nn.Module):
    """Makes its targets of its tokens, so that the last token of a slice would have none."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = Gpt()

    def forward(self, tokens: Tensor) -> Tensor:
        loss: Tensor = self.gpt(tokens[:, :-1], tokens[:, 1:])
        return loss


@pytest.mark.parametrize(
    ("source", "why"),
    [("bert-base-small", "attention to later tokens"), ("qwen1.5-moe-a2.7b-small", "all tokens meet")],
)
def test_a_model_that_is_not_causal_is_refused(source: str, why: str) -> None:
    graph = capture(CaptureRequest(source=f"zoo:{source}", batch=2, train=True), report=lambda _: None).graph
    assert graph is not None
    with pytest.raises(FailedPreconditionError, match=why):
        TokenSlices(graph)


def test_a_step_that_is_not_one_of_its_slices_is_refused() -> None:
    tokens = inputs(Gpt(), 2)["tokens"]
    with pytest.raises(FailedPreconditionError, match="another computation for 3 tokens than for 6"):
        sliced_step(Shifted(), (tokens,), (3, 3), None)
    with pytest.raises(InvalidArgumentError, match="Slices of 3, 2 tokens are no sequence of 6 tokens"):
        sliced_step(Gpt(), tuple(inputs(Gpt(), 2).values()), (3, 2), None)


CASES: dict[str, tuple[list[tuple[int, ...]], tuple[int, ...], str, OptimizerSettings]] = {
    "uniform": ([(0,), (1,)], (2, 2, 2), "1f1b", ADAMW),
    "three stages": ([(0,), (1,), (2,)], (3, 2, 1), "1f1b", SGD),
    "padded and recomputing": ([(0,), (1,)], (1, 5), "gpipe", ADAMW),
}


@pytest.fixture(scope="module")
def step() -> Captured:
    return captured(Gpt(), (2,))


@pytest.fixture(scope="module")
def shared(step: Captured) -> tuple[Captured, Execution]:
    """Two stages of two workers each that share operators, and in one of them the optimizer's state."""
    stages, slices = ["mesh: 1x2, axes: [any, model], zero: 1", "mesh: 1x2, axes: [any, model]"], (3, 2, 1)
    plan = replace(plan_of_stages(step, stages, micro_batches=4), slices=slices)
    return sliced_execution(step, slice_stages(plan, step.graph), slices, method="1f1b")


def test_slices_share_products_as_whole_sequences_do(shared: tuple[Captured, Execution]) -> None:
    sliced, execution = shared
    num_slices = execution.num_slices
    whole = {name for _, name in unshared_operators(sliced.programs[2], execution.stages, 2, num_slices=num_slices)}
    assert not any("mm" in name for name in whole)
    tiled = {execution.values_by_number()[tile.value].name for stage in execution.stages for tile in stage.tiles}
    assert any(name.endswith(".total") for name in tiled), "gradients of keys and values stay in parts between slices"


@pytest.mark.parametrize("name", CASES)
def test_a_pipeline_of_slices_learns_what_one_process_learns(name: str, step: Captured, tmp_path: Path) -> None:
    ranks, slices, method, settings = CASES[name]
    is_padded = name.startswith("padded")
    options = {"recomputes": True} if is_padded else {}
    sliced, execution = pipeline(step, ranks, slices, method=method, **options)
    _learns(write_run(tmp_path / "run", sliced, execution, optimizer=settings, padded=is_padded), step, settings)


def test_slices_with_shared_operators_learn_what_one_process_learns(
    step: Captured, shared: tuple[Captured, Execution], tmp_path: Path
) -> None:
    _learns(write_run(tmp_path / "run", *shared, optimizer=ADAMW), step, ADAMW)


def _learns(directory: Path, step: Captured, settings: OptimizerSettings) -> None:
    assert certify(read_setup(directory).execution).faults == ()
    losses = train_in_threads(directory)
    wanted, weights = train_alone(step.model, data_of(directory), settings)
    assert losses == pytest.approx(wanted, rel=1e-10)
    checkpoint = Checkpoints(directory / CHECKPOINTS_DIRECTORY, keep=1).latest()
    assert checkpoint is not None
    assert difference(checkpoint.state(), weights) < 1e-10


def test_slices_fill_a_pipeline_as_more_micro_batches_would(step: Captured) -> None:
    """Of one micro-batch of six slices on two stages: seven slices' time forward and seven backward. Slices run forward
    in order and backward in reverse, and of their keys and values the last one's are all that are kept."""
    _, execution = pipeline(step, [(0,), (1,)], (1,) * SEQ, method="1f1b")
    order = [(a.kind, execution.parts[a.part].stage % SEQ) for a in execution.ranks[0].actions if a.kind in RUNS]
    forward = [at for kind, at in order if kind is ActionKind.FORWARD]
    backward = [at for kind, at in order if kind is ActionKind.BACKWARD]
    assert forward == list(range(SEQ)) * (BATCH // 2)
    assert backward == list(reversed(range(SEQ))) * (BATCH // 2)
    seconds = simulate(execution, ExecutionTimes(parts=(1.0,) * len(execution.parts))).iteration_s
    units = SEQ * BATCH // 2
    assert seconds == 2 * (units + 1)
    assert "slice 2 of stage 1" in execution.stage_text(SEQ + 2)
