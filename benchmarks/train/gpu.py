"""A GPT that is trained on one GPU, by one rank and by two that share it, beside torch's own loop."""

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from benchmarks.train.computing import write_run
from benchmarks.train.gpt import Captured, Gpt, Size, capture
from headway.core.catalogue import read_catalogue
from headway.core.cluster import Hardware
from headway.core.execution.certifier import certify
from headway.core.execution.compiler import compile_execution
from headway.core.execution.execution import Execution
from headway.core.execution.mixed import in_bfloat16, with_casts
from headway.core.execution.orders import stage_orders
from headway.train.device import rank_device
from headway.train.setup import read_setup
from headway.train.trainer import Trainer

SIZE = Size(hidden=1024, seq=512, vocabulary=8192)
_BATCH, _MICRO_BATCH = 32, 8
_CUTS: tuple[tuple[int, ...], ...] = ((), (SIZE.num_layers // 2,))
"""The first layer of each stage but the first."""
_FLOAT32, _BFLOAT16 = "float32", "bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """Attributes:
    by: 'headway', or 'torch' for a loop of autograd over the same micro-batches.
    seconds, least_s, predicted_s: of an iteration, the median, the least, and what was predicted before the first.
    held_bytes: at the peak of each rank, as was asked of torch's allocator; with what CUDA's libraries work in.
    certified_bytes: of each rank; () of torch's loop.
    losses: of all steps.
    """

    by: str
    precision: str
    num_ranks: int
    seconds: float
    least_s: float
    predicted_s: float
    held_bytes: tuple[int, ...]
    certified_bytes: tuple[int, ...]
    losses: tuple[float, ...]


def gpu_rows(steps: int) -> tuple[str, list[GpuRow]]:
    """The GPU's name, and what was measured. The first three iterations do not count."""
    step = capture(SIZE, (_MICRO_BATCH,))
    spawn = multiprocessing.get_context("spawn")  # whoever forks must not have asked for GPUs
    rows = []
    for precision in (_FLOAT32, _BFLOAT16):
        rows += [_row(step, cuts, precision, steps, spawn.Process, spawn.Pipe) for cuts in _CUTS]
        ours, theirs = spawn.Pipe(duplex=False)
        spawn.Process(target=_torch_loop, args=(precision, steps, theirs)).start()
        name, seconds, held, losses = ours.recv()
        rows.append(
            GpuRow(
                by="torch",
                precision=precision,
                num_ranks=1,
                seconds=median(seconds),
                least_s=min(seconds),
                predicted_s=0.0,
                held_bytes=(held,),
                certified_bytes=(),
                losses=tuple(losses),
            )
        )
    return name, rows


def peak_flops(name: str, precision: str) -> float:
    """FLOP/s of a GPU by its data sheet."""
    hardware = Hardware(device="cuda", name=name, num_threads=1, memory_bytes=0)
    return read_catalogue(None).device_of(hardware).flops(precision)


def step_flops() -> float:
    """Six for each weight of a product and token, and attention's, of which half are masked."""
    tokens = _BATCH * SIZE.seq
    weights = 12 * SIZE.num_layers * SIZE.hidden**2 + SIZE.hidden * SIZE.vocabulary
    return 6.0 * tokens * (weights + SIZE.num_layers * SIZE.hidden * SIZE.seq)


def _row(
    step: Captured,
    cuts: Sequence[int],
    precision: str,
    steps: int,
    start: Callable[..., multiprocessing.process.BaseProcess],
    make_pipe: Callable[..., tuple[Connection, Connection]],
) -> GpuRow:
    used, execution = _execution(step, cuts, precision)
    with tempfile.TemporaryDirectory() as directory:
        changes = {"device": "cuda", "precision": precision, "timeout_s": 60.0}
        write_run(Path(directory), used, execution, steps=steps, **changes)
        pipes = []
        for rank in range(len(execution.ranks)):
            ours, theirs = make_pipe(duplex=False)
            start(target=_rank, args=(directory, rank, theirs)).start()
            pipes.append(ours)
        told = [pipe.recv() for pipe in pipes]
    seconds, losses, predicted_s, _ = told[0]
    return GpuRow(
        by="headway",
        precision=precision,
        num_ranks=len(execution.ranks),
        seconds=median(seconds),
        least_s=min(seconds),
        predicted_s=predicted_s,
        held_bytes=tuple(each[3] for each in told),
        certified_bytes=certify(execution).peak_bytes,
        losses=losses,
    )


def _execution(step: Captured, cuts: Sequence[int], precision: str) -> tuple[Captured, Execution]:
    stages = step.stages(cuts, _MICRO_BATCH, recomputes=False)
    if precision == _BFLOAT16:
        step = replace(step, programs={_MICRO_BATCH: in_bfloat16(step.programs[_MICRO_BATCH])})
        stages = list(with_casts(stages, step.programs[_MICRO_BATCH]))
    successors = [*((number + 1,) for number in range(len(stages) - 1)), ()]
    orders = stage_orders("1f1b", stages, successors, batch=_BATCH)
    return step, compile_execution(step.programs, stages, orders, batch=_BATCH, splits=False, optimizer="sgd")


def _rank(directory: str, rank: int, pipe: Connection) -> None:
    setup = read_setup(Path(directory))
    device = rank_device("cuda", rank)
    store = dist.FileStore(f"{directory}/store", len(setup.execution.ranks))
    reports = list(Trainer(setup, rank, store=store, should_stop=lambda: False, device=device).run())
    held = torch.cuda.memory_stats(device)["requested_bytes.all.peak"]
    seconds = [report.seconds for report in reports[3:]]
    pipe.send((seconds, tuple(report.loss for report in reports), reports[0].predicted_s, held))


def _torch_loop(precision: str, steps: int, pipe: Connection) -> None:
    """Gradients of four micro-batches are added up; bfloat16 by autocast."""
    device = rank_device("cuda", 0)
    torch.manual_seed(0)
    model = Gpt(SIZE).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    seconds, losses = [], []
    for _ in range(steps):
        tokens, targets = torch.randint(SIZE.vocabulary, (2, _BATCH, SIZE.seq), generator=generator)
        torch.cuda.synchronize()
        began_s = time.monotonic()
        tokens, targets = tokens.to(device), targets.to(device)
        total = torch.zeros((), device=device)
        optimizer.zero_grad()
        for first in range(0, _BATCH, _MICRO_BATCH):
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == _BFLOAT16):
                loss = model(tokens[first : first + _MICRO_BATCH], targets[first : first + _MICRO_BATCH])
            loss = loss * (_MICRO_BATCH / _BATCH)
            loss.backward()
            total += loss.detach()
        optimizer.step()
        losses.append(total.item())
        torch.cuda.synchronize()
        seconds.append(time.monotonic() - began_s)
    held = torch.cuda.memory_stats(device)["requested_bytes.all.peak"]
    pipe.send((torch.cuda.get_device_name(device), seconds[3:], held, losses))
