"""Lists of actions run by sleeping ranks: real messages, planned times. What an action costs, whether an iteration
takes what the simulator says, and what messages that block cost.

CPU seconds are of the rank's own process, so that a shared machine counts little.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median

import torch
import torch.distributed as dist

from benchmarks.train.gpt import Captured, Size, capture
from headway.core.execution.execution import ActionKind, Execution
from headway.core.execution.simulator import ExecutionTimes, simulate
from headway.train.batch import make_batch
from headway.train.data import SyntheticData
from headway.train.executor import Executor
from headway.train.gradients import Gradients
from headway.train.links import Links
from headway.train.parts import SleepingParts, stage_cuts

_SECONDS = {ActionKind.FORWARD: 1.0, ActionKind.BACKWARD: 2.0}
_MICRO_BATCH = 2
_NUM_MICRO_BATCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepingRow:
    """Attributes:
    iteration_s, least_s, simulated_s: measured, the median and the least; and by the lists.
    action_us: CPU time of all that is no sleep, by actions; of the rank that has most.
    """

    num_ranks: int
    stage_s: float
    blocks: bool
    iteration_s: float
    least_s: float
    simulated_s: float
    action_us: float

    @property
    def error(self) -> float:
        return self.least_s / self.simulated_s - 1 if self.simulated_s else 0.0


def sleeping_rows(stage_s: float, repeats: int) -> list[SleepingRow]:
    """1F1B with 8 micro-batches; and two ranks that do not sleep, whose actions find their memory warm.

    Args:
        stage_s: of a stage's forward pass; backward passes take twice that.
    """
    torch.set_num_threads(1)
    step = capture(Size(hidden=32, seq=16, vocabulary=64), (_MICRO_BATCH,))
    cases = [(1, False), (2, False), (4, False), (8, False), (4, True)]
    rows = [_row(step, num_ranks, stage_s, repeats, blocks=blocks) for num_ranks, blocks in cases]
    return [_row(step, 2, 0.0, 4 * repeats, blocks=False), *rows]


def _row(step: Captured, num_ranks: int, stage_s: float, repeats: int, *, blocks: bool) -> SleepingRow:
    cuts = [number * step.size.num_layers // num_ranks for number in range(1, num_ranks)]
    execution = step.execution(cuts, batch=_NUM_MICRO_BATCHES * _MICRO_BATCH, micro_batch=_MICRO_BATCH)
    seconds = tuple(_SECONDS[part.kind] * stage_s for part in execution.parts)
    told = _run(execution, step, seconds, repeats, blocks=blocks)
    walls = [max(each) for each in zip(*(walls for walls, _ in told), strict=True)]
    return SleepingRow(
        num_ranks=num_ranks,
        stage_s=stage_s,
        blocks=blocks,
        iteration_s=median(walls),
        least_s=min(walls),
        simulated_s=simulate(execution, ExecutionTimes(parts=seconds, blocks=blocks)).iteration_s,
        action_us=max(
            min(cpus) / len(each.actions) * 1e6 for (_, cpus), each in zip(told, execution.ranks, strict=True)
        ),
    )


def _run(
    execution: Execution, step: Captured, seconds: Sequence[float], repeats: int, *, blocks: bool
) -> list[tuple[list[float], list[float]]]:
    """Wall and CPU seconds of each rank's iterations but the first."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as directory:
        pipes, processes = [], []
        for rank in range(len(execution.ranks)):
            ours, theirs = fork.Pipe(duplex=False)
            arguments = (execution, step, seconds, repeats, blocks, rank, f"{directory}/store", theirs)
            processes.append(fork.Process(target=_rank, args=arguments))
            processes[-1].start()
            pipes.append(ours)
        told = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join()
    return told


def _rank(
    execution: Execution,
    step: Captured,
    seconds: Sequence[float],
    repeats: int,
    blocks: bool,  # noqa: FBT001 - arguments of a process
    rank: int,
    store: str,
    pipe: Connection,
) -> None:
    world = len(execution.ranks)
    links = Links(rank, world, store=dist.FileStore(store, world), groups=(), timeout_s=60, blocks=blocks)
    cuts = stage_cuts(execution, step.programs, rank)
    state = {name: parameter.detach() for name, parameter in step.model.named_parameters()}
    program = step.programs[_MICRO_BATCH]
    inputs = {name: value for name, value in zip(program.names, program.inputs, strict=True) if name not in state}
    names = {name for number in cuts for name in execution.stages[number].parameters}
    executor = Executor(
        execution,
        rank,
        cuts,
        runner=SleepingParts(execution, cuts, seconds),
        links=links,
        state=state,
        gradients=Gradients(execution, rank, {name: state[name] for name in sorted(names)}),
        seed=0,
    )
    batch = make_batch(execution, 0, SyntheticData(inputs, batch=execution.batch, seed=0).batch(0))
    walls, cpus = [], []
    for _ in range(repeats + 1):
        links.wait_for_all()
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        executor.step(batch)
        walls.append(time.perf_counter() - began_s)
        cpus.append(time.process_time() - began_cpu_s)
    pipe.send((walls[1:], cpus[1:]))
    links.close()
