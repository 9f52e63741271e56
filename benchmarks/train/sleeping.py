"""Lists of actions run by sleeping ranks: real messages, planned times. What an action costs, whether an iteration
takes what the simulator says, and what messages that block cost.

CPU seconds are of the rank's own process, so that a shared machine counts little.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from statistics import median

import torch
import torch.distributed as dist

from benchmarks.train.gpt import Captured, Size, capture
from headway.core.execution.execution import ActionKind, Execution
from headway.core.execution.parts import StepParts
from headway.core.execution.simulator import ExecutionTimes, Simulated, simulate
from headway.core.program import Program
from headway.train.batch import make_batch
from headway.train.data import SyntheticData
from headway.train.executor import Executor
from headway.train.gradients import Gradients
from headway.train.links import Links
from headway.train.parts import SleepingParts, TimedParts, stage_cuts

SECONDS = {ActionKind.FORWARD: 1.0, ActionKind.BACKWARD: 2.0}
"""Of a stage's passes, in units of its forward pass."""
_LEAST_S = 0.02
_MICRO_BATCH = 2
_NUM_MICRO_BATCHES = 8


@dataclass(frozen=True, kw_only=True)
class Asleep:
    """Iterations of sleeping ranks.

    Attributes:
        walls, cpus, busies: of each rank and iteration, seconds that it took, of CPU, and in which the rank slept.
        parts: seconds that each part slept in the mean, late as the machine wakes it.
    """

    execution: Execution
    walls: tuple[tuple[float, ...], ...]
    cpus: tuple[tuple[float, ...], ...]
    busies: tuple[tuple[float, ...], ...]
    parts: tuple[float, ...]
    blocks: bool

    @cached_property
    def iterations(self) -> list[float]:
        """Seconds of each."""
        return [max(each) for each in zip(*self.walls, strict=True)]

    @property
    def action_us(self) -> float:
        """CPU time of all that is no sleep, by actions; of the rank that has most."""
        ranks = zip(self.cpus, self.execution.ranks, strict=True)
        return max(min(cpus) / len(each.actions) * 1e6 for cpus, each in ranks)

    @property
    def overhead(self) -> float:
        """The share of an iteration in which the rank that has most to do beside its parts does that."""
        return max(min(cpus) for cpus in self.cpus) / min(self.iterations)

    @property
    def wait_over_theory(self) -> float:
        """By how much ranks wait longer in the quickest iteration than its lists say, with parts as late as they
        were."""
        at = self.iterations.index(min(self.iterations))
        busy = sum(each[at] for each in self.busies)
        theory: Simulated = simulate(self.execution, ExecutionTimes(parts=self.parts, blocks=self.blocks))
        waits = len(self.walls) * theory.iteration_s - sum(theory.busy_s)
        return (len(self.walls) * self.iterations[at] - busy) / waits - 1 if waits else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepingRow:
    """Attributes:
    iteration_s, least_s, simulated_s: measured, the median and the least; and by the lists.
    action_us, overhead, wait_over_theory: see `Asleep`.
    """

    num_ranks: int
    stage_s: float
    blocks: bool
    iteration_s: float
    least_s: float
    simulated_s: float
    action_us: float
    overhead: float
    wait_over_theory: float

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
    cases = [(1, stage_s, False), (2, stage_s, False), (4, stage_s, False), (8, stage_s, False), (4, stage_s, True)]
    rows = [_row(step, ranks, own_s, repeats, blocks=blocks) for ranks, own_s, blocks in [*cases, (2, _LEAST_S, False)]]
    return [_row(step, 2, 0.0, 4 * repeats, blocks=False), *rows]


def _row(step: Captured, num_ranks: int, stage_s: float, repeats: int, *, blocks: bool) -> SleepingRow:
    cuts = [number * step.size.num_layers // num_ranks for number in range(1, num_ranks)]
    execution = step.execution(cuts, batch=_NUM_MICRO_BATCHES * _MICRO_BATCH, micro_batch=_MICRO_BATCH)
    seconds = tuple(SECONDS[part.kind] * stage_s for part in execution.parts)
    state = {name: parameter.detach() for name, parameter in step.model.named_parameters()}
    found = asleep(execution, step.programs, state, seconds, repeats, blocks=blocks)
    return SleepingRow(
        num_ranks=num_ranks,
        stage_s=stage_s,
        blocks=blocks,
        iteration_s=median(found.iterations),
        least_s=min(found.iterations),
        simulated_s=simulate(execution, ExecutionTimes(parts=seconds, blocks=blocks)).iteration_s,
        action_us=found.action_us,
        overhead=found.overhead,
        wait_over_theory=found.wait_over_theory,
    )


def asleep(
    execution: Execution,
    programs: Mapping[int, Program],
    state: Mapping[str, torch.Tensor],
    seconds: Sequence[float],
    repeats: int,
    *,
    blocks: bool = False,
) -> Asleep:
    """Runs the lists in a process a rank; the first iteration does not count.

    Args:
        programs: the step by its number of examples.
        state: parameters by name.
        seconds: of a run of each part.
    """
    fork = multiprocessing.get_context("fork")
    cuts = stage_cuts(execution, programs)
    with tempfile.TemporaryDirectory() as directory:
        pipes, processes = [], []
        for rank in range(len(execution.ranks)):
            ours, theirs = fork.Pipe(duplex=False)
            arguments = (execution, programs, cuts, state, seconds, repeats, blocks, rank, f"{directory}/store", theirs)
            processes.append(fork.Process(target=_rank, args=arguments))
            processes[-1].start()
            pipes.append(ours)
        told = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join()
    parts = [[own[at] for _, _, _, own in told if own[at]] for at in range(len(execution.parts))]
    return Asleep(
        execution=execution,
        walls=tuple(walls for walls, _, _, _ in told),
        cpus=tuple(cpus for _, cpus, _, _ in told),
        busies=tuple(busies for _, _, busies, _ in told),
        parts=tuple(sum(each) / len(each) if each else 0.0 for each in parts),
        blocks=blocks,
    )


def _rank(
    execution: Execution,
    programs: Mapping[int, Program],
    all_cuts: Mapping[int, StepParts],
    state: Mapping[str, torch.Tensor],
    seconds: Sequence[float],
    repeats: int,
    blocks: bool,  # noqa: FBT001 - arguments of a process
    rank: int,
    store: str,
    pipe: Connection,
) -> None:
    world = len(execution.ranks)
    links = Links(rank, world, store=dist.FileStore(store, world), groups=(), timeout_s=60, blocks=blocks)
    cuts = {number: cut for number, cut in all_cuts.items() if rank in execution.stages[number].ranks}
    program = next(iter(programs.values()))
    inputs = {name: value for name, value in zip(program.names, program.inputs, strict=True) if name not in state}
    names = {name for number in cuts for name in execution.stages[number].parameters}
    timed = TimedParts(SleepingParts(execution, cuts, seconds))
    executor = Executor(
        execution,
        rank,
        cuts,
        runner=timed,
        links=links,
        state=state,
        gradients=Gradients(execution, rank, {name: state[name] for name in sorted(names)}),
        seed=0,
    )
    batch = make_batch(execution, 0, SyntheticData(inputs, batch=execution.batch, seed=0).batch(0))
    walls, cpus, busies = [], [], []
    slept = [(0, 0.0)] * len(execution.parts)
    for number in range(repeats + 1):
        links.wait_for_all()
        timed.begin()
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        executor.step(batch)
        walls.append(time.perf_counter() - began_s)
        cpus.append(time.process_time() - began_cpu_s)
        busies.append(timed.busy_s)
        for part, start_s, end_s in timed.runs if number else ():
            slept[part] = slept[part][0] + 1, slept[part][1] + end_s - start_s
    means = tuple(total_s / count if count else 0.0 for count, total_s in slept)
    pipe.send((tuple(walls[1:]), tuple(cpus[1:]), tuple(busies[1:]), means))
    links.close()
