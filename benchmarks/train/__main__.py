"""Lists of actions run by sleeping ranks: real messages, planned times. What an action costs, whether an iteration
takes what the simulator says, and what a second worker brings.

CPU seconds are of the rank's own process, so that a shared machine does not count.
"""

import multiprocessing
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
import torch.distributed as dist
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.execution.certifier import certify
from headway.core.execution.compiler import compile_execution
from headway.core.execution.execution import RUNS, ActionKind, Execution, StageSpec
from headway.core.execution.orders import stage_orders
from headway.core.execution.simulator import ExecutionTimes, simulate
from headway.core.graph import Graph
from headway.core.program import Program
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.program import build_program
from headway.profiler.capture.trace import trace
from headway.profiler.zoo.families.gpt import GptConfig
from headway.profiler.zoo.model import ZooModel
from headway.profiler.zoo.network import make_network
from headway.train.batch import make_batch
from headway.train.data import SyntheticData
from headway.train.executor import Executor
from headway.train.gradients import Gradients
from headway.train.links import Links
from headway.train.parts import SleepingParts, stage_cuts

_MODEL = ZooModel(
    name="gpt",
    family="gpt",
    source="a small GPT of eight layers",
    config=GptConfig(num_layers=8, hidden=32, num_heads=4, vocabulary=64, seq=16),
    is_trained_in_paper=True,
)
_SECONDS = {ActionKind.FORWARD: 1.0, ActionKind.BACKWARD: 2.0}
_NUM_LAYERS = 8
_MICRO_BATCH = 2
_MOST_ACTION_US = 60.0

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Attributes:
    forward_s: planned for one run of the whole model; a stage has its share of it.
    iteration_s, simulated_s: measured, the median, and by the lists.
    action_us: CPU time of all that is no sleep, by actions that are no runs; of the rank that has most.
    """

    num_ranks: int
    num_micro_batches: int
    forward_s: float
    iteration_s: float
    simulated_s: float
    action_us: float

    @property
    def error(self) -> float:
        return self.iteration_s / self.simulated_s - 1


def main(
    *,
    forward_s: Annotated[float, typer.Option("--forward", help="Seconds of a forward pass of the model.")] = 0.16,
    repeats: Annotated[int, typer.Option(help="Iterations; the first is left out.")] = 6,
    out: Annotated[Path, typer.Option(help="Where to write the result.")] = RESULTS_DIR / "train.json",
) -> None:
    """Run 1, 2 and 4 sleeping ranks, 1F1B, 8 micro-batches."""
    torch.set_num_threads(1)
    graph, program = _captured()
    rows = [_row(graph, program, num_ranks, 8, forward_s, repeats) for num_ranks in (1, 2, 4)]
    table = Table("ranks", "iteration", "simulated", "error", "over one rank", "CPU an action", "target")
    for row in rows:
        table.add_row(
            str(row.num_ranks),
            f"{row.iteration_s:.3f} s",
            f"{row.simulated_s:.3f} s",
            f"{row.error:+.1%}",
            f"{rows[0].iteration_s / row.iteration_s:.2f}x",
            f"{row.action_us:.0f} us",
            f"{_MOST_ACTION_US:.0f} us: {'yes' if row.action_us <= _MOST_ACTION_US else 'no'}",
        )
    console.print(table)
    write_result(out, {"rows": [{**asdict(row), "error": row.error} for row in rows]})


def _captured() -> tuple[Graph, Program]:
    inputs = _MODEL.example_inputs(batch=_MICRO_BATCH)
    targets = _MODEL.example_targets(batch=_MICRO_BATCH)
    traced = trace(make_network(_MODEL), inputs, train=True, targets=targets, report=lambda _: None)
    return build_graph(traced, name="gpt", is_training=True, batch=_MICRO_BATCH), build_program(traced)


def _stages(graph: Graph, num_stages: int) -> list[StageSpec]:
    """Layers spread evenly; what is in none goes with what it reads."""
    place: dict[str, int] = {}
    maker = {name: op.name for op in graph.operators for name in op.outputs}
    for op in graph.operators:
        if not op.is_backward:
            before = max((place[maker[name]] for name in op.inputs if name in maker), default=0)
            parts = op.module.split(".")
            own = int(parts[1]) * num_stages // _NUM_LAYERS if parts[0] == "layers" else before
            place[op.name] = max(before, own)
    return [
        StageSpec(
            forward=tuple(op.name for op in graph.operators if place.get(op.name) == number),
            backward=tuple(op.name for op in graph.operators if op.is_backward and place[op.forward] == number),
            ranks=(number,),
            micro_batch=_MICRO_BATCH,
        )
        for number in range(num_stages)
    ]


def _row(graph: Graph, program: Program, num_ranks: int, count: int, forward_s: float, repeats: int) -> Row:
    batch = count * _MICRO_BATCH
    stages = _stages(graph, num_ranks)
    successors = [(number + 1,) if number + 1 < num_ranks else () for number in range(num_ranks)]
    orders = stage_orders("1f1b", stages, successors, batch=batch)
    execution = compile_execution({_MICRO_BATCH: program}, stages, orders, batch=batch, splits=False)
    assert certify(execution).faults == ()
    seconds = tuple(_SECONDS[part.kind] * forward_s / num_ranks for part in execution.parts)
    told = _run(execution, program, seconds, repeats)
    return Row(
        num_ranks=num_ranks,
        num_micro_batches=count,
        forward_s=forward_s,
        iteration_s=max(median(walls) for walls, _ in told),
        simulated_s=simulate(execution, ExecutionTimes(parts=seconds)).iteration_s,
        action_us=max(
            median(cpus) / max(1, sum(action.kind not in RUNS for action in each.actions)) * 1e6
            for (_, cpus), each in zip(told, execution.ranks, strict=True)
        ),
    )


def _run(
    execution: Execution, program: Program, seconds: tuple[float, ...], repeats: int
) -> list[tuple[list[float], list[float]]]:
    """Wall and CPU seconds of each rank's iterations but the first."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as directory:
        pipes, processes = [], []
        for rank in range(len(execution.ranks)):
            ours, theirs = fork.Pipe(duplex=False)
            arguments = (execution, program, seconds, repeats, rank, f"{directory}/store", theirs)
            processes.append(fork.Process(target=_rank, args=arguments))
            processes[-1].start()
            pipes.append(ours)
        told = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join()
    return told


def _rank(
    execution: Execution,
    program: Program,
    seconds: tuple[float, ...],
    repeats: int,
    rank: int,
    store: str,
    pipe: Connection,
) -> None:
    world = len(execution.ranks)
    reduced = (action for each in execution.ranks for action in each.actions if action.kind is ActionKind.REDUCE)
    groups = sorted({action.ranks for action in reduced})
    links = Links(rank, world, store=dist.FileStore(store, world), groups=groups, timeout_s=60)
    cuts = stage_cuts(execution, {_MICRO_BATCH: program}, rank)
    given = dict(zip(program.names, program.inputs, strict=True))
    data = {name: value for name, value in given.items() if name in ("tokens", "targets")}
    state = {name: torch.zeros(value.shape) for name, value in given.items() if name not in data}
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
    batch = make_batch(execution, 0, SyntheticData(data, batch=execution.batch, seed=0).batch(0))
    walls, cpus = [], []
    for _ in range(repeats):
        links.wait_for_all()
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        executor.step(batch)
        walls.append(time.perf_counter() - began_s)
        cpus.append(time.process_time() - began_cpu_s)
    pipe.send((walls[1:], cpus[1:]))
    links.close()


if __name__ == "__main__":
    typer.run(main)
