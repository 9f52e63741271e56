"""What running a plan takes beside its operators: a split backward pass, tracing and compiling, and a restart."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist

from benchmarks.train.computing import write_run
from benchmarks.train.gpt import Captured, Size, capture
from headway.core.execution.certifier import certify
from headway.core.execution.compiler import compile_execution
from headway.core.execution.execution import ActionKind, Execution
from headway.core.execution.orders import StageTask
from headway.core.training_job import CheckpointSettings
from headway.train.batch import make_batch
from headway.train.data import SyntheticData
from headway.train.executor import Executor
from headway.train.gang import Gang, train
from headway.train.gradients import Gradients
from headway.train.links import Links
from headway.train.parts import ComputingParts, stage_cuts
from headway.train.setup import read_setup

_MICRO_BATCH, _BATCH = 4, 8
_FOUR_STAGES = (2, 4, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCosts:
    """CPU seconds of an iteration on one rank, the least: with whole backward passes, and with those in two parts."""

    whole_s: float
    split_s: float

    @property
    def ratio(self) -> float:
        return self.split_s / self.whole_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingCosts:
    """Attributes:
    traced_s, traced_cpu_s: from the module to what four ranks run: tracing, cutting, compiling, certifying.
    kept_s, kept_cpu_s: from a run's directory to what a rank runs, as when it begins again; the most of a rank.
    """

    traced_s: float
    traced_cpu_s: float
    kept_s: float
    kept_cpu_s: float


def split_costs(step: Captured, repeats: int) -> SplitCosts:
    """Two stages, both on one rank, in turns."""
    torch.set_num_threads(1)
    iterations = [_iteration(step, splits=splits) for splits in (False, True)]
    seconds = [[_cpu_s(iteration) for iteration in iterations] for _ in range(repeats + 1)][1:]
    return SplitCosts(whole_s=min(whole for whole, _ in seconds), split_s=min(split for _, split in seconds))


def tracing_costs(size: Size) -> TracingCosts:
    capture(size, (_MICRO_BATCH,))  # what torch loads when it traces for the first time
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    step = capture(size, (_MICRO_BATCH,))
    execution = step.execution(_FOUR_STAGES, batch=_BATCH, micro_batch=_MICRO_BATCH)
    for rank in range(len(execution.ranks)):
        ComputingParts(execution, stage_cuts(execution, step.programs, rank), sums=step.sums)
    traced = time.monotonic() - began_s, time.process_time() - began_cpu_s
    kept = []
    with TemporaryDirectory() as text:
        directory = write_run(Path(text), step, execution, steps=1)
        for rank in range(len(execution.ranks)):
            began_s, began_cpu_s = time.monotonic(), time.process_time()
            setup = read_setup(directory)
            ComputingParts(setup.execution, stage_cuts(setup.execution, setup.programs, rank), sums=step.sums)
            kept.append((time.monotonic() - began_s, time.process_time() - began_cpu_s))
    return TracingCosts(
        traced_s=traced[0],
        traced_cpu_s=traced[1],
        kept_s=max(wall_s for wall_s, _ in kept),
        kept_cpu_s=max(cpu_s for _, cpu_s in kept),
    )


def restart_s(step: Captured, execution: Execution) -> float:
    """From a rank's death by SIGKILL to the end of the first step of the next gang."""
    gangs: list[Gang] = []
    with TemporaryDirectory() as text:
        policy = CheckpointSettings(every=2)
        directory = write_run(Path(text), step, execution, steps=6, restarts=1, checkpoint=policy)
        killed_s = ended_s = 0.0
        for report in train(read_setup(directory), started=gangs.append, restarted=lambda _: None):
            if len(gangs) == 1 and report.step == 3:
                os.kill(gangs[0].pids[-1], signal.SIGKILL)
                killed_s = time.monotonic()
            elif len(gangs) > 1 and not ended_s:
                ended_s = time.monotonic()
    return ended_s - killed_s


def _iteration(step: Captured, *, splits: bool) -> Callable[[], object]:
    stages = step.stages((step.size.num_layers // 2,), _MICRO_BATCH, recomputes=False, ranks=(0, 0))
    kinds = (ActionKind.INPUT, ActionKind.WEIGHT) if splits else (ActionKind.BACKWARD,)
    passes = [(0, ActionKind.FORWARD), (1, ActionKind.FORWARD), *((stage, kind) for stage in (1, 0) for kind in kinds)]
    order = tuple(StageTask(stage, kind, m) for m in range(_BATCH // _MICRO_BATCH) for stage, kind in passes)
    programs = {_MICRO_BATCH: step.programs[_MICRO_BATCH]}
    execution = compile_execution(programs, stages, [order], batch=_BATCH, splits=splits, optimizer="sgd")
    assert certify(execution).faults == ()
    cuts = stage_cuts(execution, programs, 0)
    state = {name: parameter.detach() for name, parameter in step.model.named_parameters()}
    program = programs[_MICRO_BATCH]
    inputs = {name: value for name, value in zip(program.names, program.inputs, strict=True) if name not in state}
    gradients = Gradients(execution, 0, state)
    executor = Executor(
        execution,
        0,
        cuts,
        runner=ComputingParts(execution, cuts, sums=gradients.by_name),
        links=Links(0, 1, store=dist.HashStore(), groups=(), timeout_s=60),
        state=state,
        gradients=gradients,
        seed=0,
    )
    batch = make_batch(execution, 0, SyntheticData(inputs, batch=_BATCH, seed=0).batch(0))
    return lambda: executor.step(batch)


def _cpu_s(call: Callable[[], object]) -> float:
    began_s = time.process_time()
    call()
    return time.process_time() - began_s
