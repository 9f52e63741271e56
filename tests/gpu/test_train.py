"""Training on a GPU: its kernels for attention, that ranks learn what one process learns, and what they hold."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from headway.core.execution.certifier import certify
from headway.core.execution.execution import Execution
from headway.core.execution.mixed import in_bfloat16, with_casts
from headway.core.training_job import OptimizerSettings
from headway.core.training_run import CHECKPOINTS_DIRECTORY
from headway.programs.attention import attention, attention_backward
from headway.train.checkpoint import Checkpoints
from headway.train.communicator import communicator
from tests.train.models import Branches, Gpt, Mt5, branch_stage, gpt_stage
from tests.train.plans import planned
from tests.train.runs import (  # fmt: skip
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

if not torch.cuda.is_available():
    pytest.skip("not run: there is no GPU here", allow_module_level=True)

DEVICE = torch.device("cuda", 0)
ADAMW = OptimizerSettings(rate=3e-3, weight_decay=0.01, clip=0.5)
SGD = OptimizerSettings(name="sgd", rate=0.05)
WITHIN = {torch.float64: 1e-10, torch.float32: 1e-5}
_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("queries", "keys", "head"), [(6, 6, 8), (37, 37, 64), (64, 64, 6), (5, 40, 16)])
@pytest.mark.parametrize("masked", ["", "causal", "masked"])
def test_attention_gives_what_the_operator_for_cpus_gives(
    dtype: torch.dtype, queries: int, keys: int, head: int, masked: str
) -> None:
    """Results, sums and gradients, and their order in memory; the operator computes in float64."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, 3, queries, head)
    query, gradient = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    key, value = (torch.randn(2, 3, keys, head, generator=generator).to(dtype) for _ in range(2))
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    mask = torch.zeros(queries, keys, dtype=dtype).masked_fill(~seen, float("-inf")) if masked == "masked" else None
    causal = masked == "causal"
    exact = [each.double() for each in (query, key, value)]
    wide = None if mask is None else mask.double()
    out, sums = _forward(*exact, 0.0, causal, attn_mask=wide)
    wanted = _backward(gradient.double(), *exact, out, sums, 0.0, causal, attn_mask=wide)
    given = [each.to(DEVICE) for each in (query, key, value)]
    there = None if mask is None else mask.to(DEVICE)
    found, found_sums = attention(*given, 0.0, causal, attn_mask=there)
    gradients = attention_backward(gradient.to(DEVICE), *given, found, found_sums, 0.0, causal, attn_mask=there)
    within = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    for name, one, other in zip(("out", "sums", "q", "k", "v"), (found, found_sums, *gradients), (out, sums, *wanted), strict=True):  # fmt: skip  # noqa: E501
        assert one.shape == other.shape
        assert one.stride() == other.stride(), name
        error = (one.cpu().double() - other).norm() / other.norm()
        assert error < within, name
    assert found.dtype == dtype
    assert found_sums.dtype == torch.promote_types(dtype, torch.float32)


def _chain(step: Captured, num_stages: int, *, recomputes: bool = False, splits: bool = False) -> Execution:
    numbers = range(num_stages)
    stages = stages_of(
        step.graph, lambda m: gpt_stage(m, num_stages), [(n,) for n in numbers], [2] * num_stages, recomputes=recomputes
    )
    return execution_of(step, stages, successors=[*((n + 1,) for n in numbers[:-1]), ()], splits=splits)


def _alone(step: Captured) -> Execution:
    stages = stages_of(step.graph, lambda _: 0, [(0,)], [2])
    return execution_of(step, stages, successors=[()])


def _copies(step: Captured, zero: int) -> Execution:
    stages = stages_of(step.graph, lambda m: gpt_stage(m, 2), [(0, 1), (2,)], [8, 2])
    return execution_of(step, [replace(stage, zero=zero) for stage in stages], successors=[(1,), ()])


def _branches(step: Captured) -> Execution:
    stages = stages_of(step.graph, branch_stage, [(0,), (1,), (2,)], [2, 8, 4])
    return execution_of(step, stages, successors=[(2,), (2,), ()])


def _sliced(step: Captured) -> tuple[Captured, Execution]:
    return pipeline(step, [(0,), (1,)], (3, 2, 1), method="1f1b")


def _mixed(step: Captured) -> tuple[Captured, Execution]:
    mixed = replace(step, programs={2: in_bfloat16(step.programs[2])})
    stages = stages_of(step.graph, lambda m: gpt_stage(m, 2), [(0,), (1,)], [2, 2])
    return mixed, execution_of(mixed, list(with_casts(stages, mixed.programs[2])), successors=[(1,), ()])


Made = Callable[[Captured], Execution | tuple[Captured, Execution]]
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Made, OptimizerSettings, torch.dtype]] = {
    "one rank": (Gpt, (2,), _alone, ADAMW, torch.float64),
    "one rank in float32": (Gpt, (2,), _alone, SGD, torch.float32),
    "two stages": (Gpt, (2,), lambda step: _chain(step, 2), ADAMW, torch.float64),
    "two stages in float32": (Gpt, (2,), lambda step: _chain(step, 2), SGD, torch.float32),
    "recomputing": (Gpt, (2,), lambda step: _chain(step, 2, recomputes=True), ADAMW, torch.float64),
    "gradients apart": (Gpt, (2,), lambda step: _chain(step, 2, splits=True), ADAMW, torch.float64),
    "branches": (Branches, (2, 4, 8), _branches, ADAMW, torch.float64),
    "shared updates": (Gpt, (2, 4), lambda step: _copies(step, 1), ADAMW, torch.float64),
    "shared gradients": (Gpt, (2, 4), lambda step: _copies(step, 2), ADAMW, torch.float64),
    "shared parameters": (Gpt, (2, 4), lambda step: _copies(step, 3), ADAMW, torch.float64),
    "shared operators": (Gpt, (4,), lambda step: planned(step, "mesh: 1x2, axes: [any, model]"), ADAMW, torch.float64),
    "slices": (Gpt, (2,), _sliced, ADAMW, torch.float64),
    "slices in float32": (Gpt, (2,), _sliced, SGD, torch.float32),
    "bfloat16": (Gpt, (2,), _mixed, SGD, torch.float32),
    "encoder and decoder": (Mt5, (2,), _alone, ADAMW, torch.float64),
}


@dataclass(frozen=True, kw_only=True)
class Trained:
    step: Captured
    directory: Path
    losses: list[float]

    @property
    def state(self) -> dict[str, Tensor]:
        checkpoint = Checkpoints(self.directory / CHECKPOINTS_DIRECTORY, keep=1).latest()
        assert checkpoint is not None
        return checkpoint.state()


def _case(name: str) -> tuple[Captured, Execution]:
    """What is run, and its lists."""
    make, counts, execution, _, dtype = CASES[name]
    step = captured(make(), counts, dtype)
    made = execution(step)
    return made if isinstance(made, tuple) else (step, made)


def _trained(directory: Path, name: str) -> Trained:
    step, execution = _case(name)
    assert certify(execution).faults == ()
    write_run(directory, step, execution, optimizer=CASES[name][3], device="cuda")
    return Trained(step=step, directory=directory, losses=train_in_threads(directory, DEVICE))


def _alone_on_gpu(trained: Trained, settings: OptimizerSettings) -> tuple[list[float], dict[str, Tensor]]:
    data = data_of(trained.directory)
    model = trained.step.model.to(DEVICE)
    losses, weights = train_alone(
        model, lambda number: {name: tensor.to(DEVICE) for name, tensor in data(number).items()}, settings
    )
    trained.step.model.to("cpu")
    return losses, {name: weight.cpu() for name, weight in weights.items()}


@pytest.mark.parametrize("name", [name for name in CASES if name != "bfloat16"])
def test_ranks_learn_what_one_process_learns(name: str, tmp_path: Path) -> None:
    """All ranks share the GPU, and exchange through the host's memory."""
    _, _, _, settings, dtype = CASES[name]
    trained = _trained(tmp_path / "run", name)
    losses, weights = _alone_on_gpu(trained, settings)
    assert trained.losses == pytest.approx(losses, rel=WITHIN[dtype])
    assert difference(trained.state, weights) < WITHIN[dtype]
    assert losses[-1] < losses[0]


def test_bfloat16_learns_and_keeps_float32(tmp_path: Path) -> None:
    wide, narrow = (_trained(tmp_path / name, name) for name in ("two stages in float32", "bfloat16"))
    assert narrow.losses == pytest.approx(wide.losses, rel=2e-2)
    assert narrow.losses != wide.losses
    assert {tensor.dtype for tensor in narrow.state.values()} == {torch.float32}
    first = dict(wide.step.model.named_parameters())
    errors = [(narrow.state[key] - wide.state[key]).norm() / (wide.state[key] - first[key]).norm() for key in first]
    assert max(errors) < 0.1


def test_processes_that_share_a_gpu_learn_what_threads_do_and_go_on_later(tmp_path: Path) -> None:
    """As `headway train` starts them: forked, then each on the GPU. The second run is ended after 7 steps."""
    threads = _trained(tmp_path / "threads", "two stages")
    (step, execution), settings = _case("two stages"), CASES["two stages"][3]
    whole = write_run(tmp_path / "whole", step, execution, optimizer=settings, device="cuda")
    again = write_run(tmp_path / "again", step, execution, optimizer=settings, device="cuda", steps=7)
    for directory in (whole, again):
        _train(directory)
    document = json.loads((again / "run.json").read_text())
    document["job"]["steps"] = 20
    (again / "run.json").write_text(json.dumps(document))
    _train(again)
    states = [Trained(step=step, directory=directory, losses=[]).state for directory in (whole, again)]
    for state in states:
        assert difference(state, threads.state) < 1e-12
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def _train(directory: Path) -> None:
    order = json.dumps(str(directory)) + "\n"
    command = [sys.executable, "-m", "headway.train"]
    ended = subprocess.run(command, input=order, capture_output=True, text=True, timeout=170, check=True)
    news = [json.loads(line) for line in ended.stdout.splitlines()]
    assert not [each for each in news if each.get("error") or each.get("restart")], ended.stderr


def test_a_rank_with_a_gpu_of_its_own_exchanges_by_nccl() -> None:
    """As far as one GPU goes: a group of one."""
    group = communicator(dist.HashStore(), 0, 1, device=DEVICE, timeout=timedelta(seconds=60))
    assert isinstance(group, dist.ProcessGroupNCCL)
    limit = timedelta(seconds=60)
    tensor = torch.arange(4.0, device=DEVICE)
    group.allreduce([tensor]).wait(limit)
    exchanged = torch.empty_like(tensor)
    group.alltoall_base(exchanged, tensor, [], []).wait(limit)
    assert tensor.tolist() == exchanged.tolist() == [0.0, 1.0, 2.0, 3.0]
    group.shutdown()
