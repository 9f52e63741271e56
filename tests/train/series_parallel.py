"""Random series-parallel modules in random stages, with micro-batches and meshes of their own: the lists of all ranks,
run by threads, give one process's loss and gradients.

`python -m tests.train.series_parallel 200` checks so many, and with a further number only those from that one on.
"""

import copy
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.core.execution.certifier import certify
from headway.core.execution.compiler import compile_execution
from headway.core.execution.execution import Execution, StageSpec
from headway.core.execution.orders import stage_orders
from headway.core.execution.sharding import SplitOperator, StageSharding, TensorTile
from headway.core.graph import Graph
from headway.core.program import Program
from headway.core.sharding_spec import Shard, ShardingSpec
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.program import build_program
from headway.profiler.capture.trace import trace
from headway.train.batch import make_batch
from headway.train.executor import Executor
from headway.train.gradients import Gradients
from headway.train.links import Links, Pending
from headway.train.parts import ComputingParts, stage_cuts
from headway.train.team import teams_of
from tests.train.runs import stages_of
from tests.train.test_local_programs import Meeting, ThreadLinks

WIDTH, BATCH, MOST_STAGES = 8, 8, 4


class Leaf(nn.Module):
    def __init__(self, chosen: random.Random) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH) if chosen.random() < 0.3 else None

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.linear(x))
        return y if self.norm is None else cast("Tensor", self.norm(y))


class Parallel(nn.Module):
    def __init__(self, branches: Sequence[nn.Module]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        first, *others = [branch(x) for branch in self.branches]
        return sum(others, start=first)  # type: ignore[no-any-return]


class Model(nn.Module):
    def __init__(self, chosen: random.Random) -> None:
        super().__init__()
        self.body, self.head = _module(chosen, 3), nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor, response: Tensor) -> Tensor:
        return functional.mse_loss(self.head(self.body(x)), response)


def _module(chosen: random.Random, depth: int) -> nn.Module:
    kind = chosen.choice(["leaf", "series", "parallel"]) if depth < 3 else "series"
    if not depth or kind == "leaf":
        return Leaf(chosen)
    parts = [_module(chosen, depth - 1) for _ in range(chosen.choice([2, 2, 3]))]
    return nn.Sequential(*parts) if kind == "series" else Parallel(parts)


class MemoryLinks(ThreadLinks):
    """What the threads of all ranks exchange."""

    def __init__(self, rank: int, room: "Room") -> None:
        super().__init__(rank, room.meetings, room.lock)
        self._own, self._room = rank, room
        self._num_sums: dict[tuple[int, ...], int] = {}

    def send(self, tensor: Tensor, peer: int, tag: int) -> Pending:
        self._room.put((self._own, peer, tag), tensor.clone())
        return _Later(lambda: None)

    def receive(self, tensor: Tensor, peer: int, tag: int) -> Pending:
        return _Later(lambda: tensor.copy_(self._room.take((peer, self._own, tag))))

    def add_up(self, tensor: Tensor, ranks: tuple[int, ...]) -> Pending:
        number = self._num_sums[ranks] = self._num_sums.get(ranks, -1) + 1
        self._room.put((ranks, self._own, number), tensor.clone())
        terms = [(ranks, each, number) for each in ranks]
        return _Later(lambda: tensor.copy_(torch.stack([self._room.take(term) for term in terms]).sum(0)))


class _Later:
    def __init__(self, finish: Callable[[], object]) -> None:
        self._finish = finish

    def wait(self, what: str) -> None:
        self._finish()


class Room:
    """Where tensors lie by who sent them to whom, as which."""

    def __init__(self) -> None:
        self.there: dict[object, Tensor] = {}
        self.meetings: dict[tuple[int, ...], Meeting] = {}
        self.lock = threading.Lock()
        self._news = threading.Condition()

    def put(self, key: object, tensor: Tensor) -> None:
        with self._news:
            self.there[key] = tensor
            self._news.notify_all()

    def take(self, key: object) -> Tensor:
        with self._news:
            assert self._news.wait_for(lambda: key in self.there, timeout=60), f"{key} never came"
            return self.there[key]


def check(seed: int) -> Execution:
    """Makes a module, stages and lists, runs them, and compares; AssertionError where anything differs."""
    chosen = random.Random(seed)
    torch.manual_seed(seed)
    model = Model(chosen).double()
    batch = {"x": torch.randn(BATCH, WIDTH).double(), "response": torch.randn(BATCH, 1).double()}
    graph, programs = _captured(model, batch)
    stages = list(_stages(graph, programs[BATCH], chosen))
    successors = _successors(graph, stages)
    orders = stage_orders(chosen.choice(["1f1b", "gpipe"]), stages, successors, batch=BATCH)
    used = {stage.examples: programs[stage.examples] for stage in stages}
    execution = compile_execution(used, stages, orders, batch=BATCH, splits=False)
    assert certify(execution).faults == ()
    loss, gradients = _run(execution, used, model, batch)
    wanted = model(**batch)
    wanted.backward()
    assert abs(loss - wanted.item()) <= 1e-10 * abs(wanted.item())
    parameters = dict(model.named_parameters())
    assert gradients.keys() == parameters.keys()
    norm = torch.cat([each.grad.flatten() for each in parameters.values() if each.grad is not None]).norm()
    for name, parameter in parameters.items():
        assert (gradients[name] - parameter.grad).norm() <= 1e-10 * norm, name
    return execution


def _captured(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Graph, dict[int, Program]]:
    programs = {}
    for count in (2, 4, BATCH):
        given = tuple(each[:count].clone() for each in batch.values())
        traced = trace(copy.deepcopy(model), given, train=True, report=lambda _: None)
        graph = build_graph(traced, name="model", is_training=True, batch=count)
        programs[count] = build_program(traced)
    return graph, programs


def _stages(graph: Graph, program: Program, chosen: random.Random) -> Iterator[StageSpec]:
    """Each of some modules' operators: on one rank, on two with a part of each micro-batch, or on two that share
    operators."""
    places: dict[str, int] = {}
    plain = stages_of(
        graph,
        lambda module: places.setdefault(module, chosen.randrange(MOST_STAGES)),
        [()] * (MOST_STAGES + 1),
        [1] * (MOST_STAGES + 1),
    )
    first = 0
    for stage in (each for each in plain if each.forward):
        kind = chosen.choice(["alone", "copies", "team"])
        ranks = tuple(range(first, first + (1 if kind == "alone" else 2)))
        first += len(ranks)
        size = chosen.choice([4, 8] if kind == "copies" else [2, 4, 8])
        made = replace(stage, ranks=ranks, micro_batch=size, recomputes=chosen.random() < 0.3)
        yield replace(made, sharding=_sharding(made, program, chosen)) if kind == "team" else made


def _sharding(stage: StageSpec, program: Program, chosen: random.Random) -> StageSharding:
    """Operators that read what they are given cut along some dim, where a rule says that this is exact."""
    positions, operators = program.positions(), []
    for name in (*stage.forward, *stage.backward):
        read = program.references(positions[name])
        tiles = [
            TensorTile(tensor=program.name_of(number), spec=ShardingSpec((Shard(chosen.randrange(2)),)))
            for number in read
            if len(program.value(number).shape) == 2
        ]
        if tiles and chosen.random() < 0.7:
            operators.append(SplitOperator(operator=name, reads=tuple(tiles)))
    return StageSharding(mesh=(2,), operators=tuple(operators))


def _successors(graph: Graph, stages: Sequence[StageSpec]) -> list[tuple[int, ...]]:
    owner = {name: number for number, stage in enumerate(stages) for name in stage.forward}
    maker = {tensor: owner[op.name] for op in graph.operators if op.name in owner for tensor in op.outputs}
    later: list[set[int]] = [set() for _ in stages]
    for op in graph.operators:
        for tensor in op.inputs if op.name in owner else ():
            if tensor in maker and maker[tensor] != owner[op.name]:
                later[maker[tensor]].add(owner[op.name])
    return [tuple(sorted(each)) for each in later]


def _run(
    execution: Execution, programs: dict[int, Program], model: nn.Module, tensors: dict[str, Tensor]
) -> tuple[float, dict[str, Tensor]]:
    """The loss and the gradients of all parameters."""
    state = {name: parameter.detach() for name, parameter in model.named_parameters()}
    batch, room = make_batch(execution, 0, tensors), Room()

    @torch.no_grad()
    def run(rank: int) -> tuple[float, Gradients]:
        links = cast("Links", MemoryLinks(rank, room))
        teams, cuts = teams_of(execution, rank, links), stage_cuts(execution, programs, rank)
        own = sorted({name for number in cuts for name in execution.stages[number].parameters})
        gradients = Gradients(execution, rank, {name: state[name] for name in own})
        runner = ComputingParts(execution, cuts, sums=gradients.by_name, teams=teams)
        executor = Executor(execution, rank, cuts, runner=runner, links=links, state=state, gradients=gradients, seed=0)
        return float(executor.step(batch)), gradients

    with ThreadPoolExecutor(len(execution.ranks)) as pool:
        done = list(pool.map(run, range(len(execution.ranks))))
    return sum(loss for loss, _ in done), {n: g for _, gradients in done for n, g in gradients.by_name.items()}


if __name__ == "__main__":
    for number in range(*reversed([int(argument) for argument in sys.argv[1:3]])):
        check(number)
        print(f"module {number}: exact", flush=True)
