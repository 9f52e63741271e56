"""What papers say of schedules, on ranks that sleep: GraphPipe's case study."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.train.sleeping import SECONDS, asleep
from headway.core.execution.certifier import certify
from headway.core.execution.compiler import compile_execution
from headway.core.execution.execution import Execution, StageSpec
from headway.core.execution.orders import stage_orders
from headway.core.graph import Graph
from headway.core.program import Program
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.program import build_program
from headway.profiler.capture.trace import trace

_WIDTH, _NUM_LAYERS, _NUM_MICRO_BATCHES = 8, 8, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStudy:
    """Attributes:
    chain_s, branches_s: of the least iteration of eight layers one behind the other, and of two branches of four.
    wanted: how many times as long a chain takes: (N + 7) / (N + 3) with N micro-batches.
    """

    chain_s: float
    branches_s: float
    wanted: float
    chain_wait_over_theory: float
    branches_wait_over_theory: float

    @property
    def ratio(self) -> float:
        return self.chain_s / self.branches_s

    @property
    def error(self) -> float:
        return self.ratio / self.wanted - 1


class Branches(nn.Module):
    """Layers in branches, whose ends are added up."""

    def __init__(self, num_branches: int) -> None:
        super().__init__()
        depth = _NUM_LAYERS // num_branches
        self.branches = nn.ModuleList(
            nn.Sequential(*(nn.Linear(_WIDTH, _WIDTH) for _ in range(depth))) for _ in range(num_branches)
        )

    def forward(self, x: Tensor, response: Tensor) -> Tensor:
        first, *others = [branch(x) for branch in self.branches]
        return functional.mse_loss(sum(others, start=first), response)


def case_study(stage_s: float, repeats: int) -> CaseStudy:
    """Eight stages of a layer each and a ninth, which takes no time, for the sum and the loss; 1F1B.

    Args:
        stage_s: of a stage's forward pass; backward passes take twice that.
    """
    torch.set_num_threads(1)
    found = []
    for num_branches in (1, 2):
        model = Branches(num_branches)
        graph, program = _captured(model)
        execution = _execution(graph, program, num_branches)
        is_work = [execution.stages[part.stage].parameters != () for part in execution.parts]
        seconds = [SECONDS[part.kind] * stage_s * works for part, works in zip(execution.parts, is_work, strict=True)]
        state = {name: parameter.detach() for name, parameter in model.named_parameters()}
        found.append(asleep(execution, {1: program}, state, seconds, repeats))
    chain, branches = found
    return CaseStudy(
        chain_s=min(chain.iterations),
        branches_s=min(branches.iterations),
        wanted=(_NUM_MICRO_BATCHES + 7) / (_NUM_MICRO_BATCHES + 3),
        chain_wait_over_theory=chain.wait_over_theory,
        branches_wait_over_theory=branches.wait_over_theory,
    )


def _captured(model: nn.Module) -> tuple[Graph, Program]:
    given = torch.zeros(1, _WIDTH), torch.zeros(1, _WIDTH)
    traced = trace(copy.deepcopy(model), given, train=True, report=lambda _: None)
    return build_graph(traced, name="branches", is_training=True, batch=1), build_program(traced)


def _execution(graph: Graph, program: Program, num_branches: int) -> Execution:
    """Each layer is a stage; the last one has what is in no layer. That takes no time and is no step of the pipeline:
    branches begin backward passes as if they ended apart."""
    depth = _NUM_LAYERS // num_branches
    place = {}
    for op in graph.operators:
        _, *layer = op.module.split(".") if op.module else ("",)
        place[op.name] = int(layer[0]) * depth + int(layer[1]) if len(layer) > 1 else _NUM_LAYERS
    stages = [
        StageSpec(
            forward=tuple(op.name for op in graph.operators if not op.is_backward and place[op.name] == number),
            backward=tuple(op.name for op in graph.operators if op.is_backward and place[op.forward] == number),
            ranks=(number,),
            micro_batch=1,
        )
        for number in range(_NUM_LAYERS + 1)
    ]
    ends = {(branch + 1) * depth - 1 for branch in range(num_branches)} | {_NUM_LAYERS}
    successors = [() if number in ends else (number + 1,) for number in range(_NUM_LAYERS + 1)]
    orders = stage_orders("1f1b", stages, successors, batch=_NUM_MICRO_BATCHES)
    found = compile_execution({1: program}, stages, orders, batch=_NUM_MICRO_BATCHES, splits=False, optimizer="sgd")
    assert certify(found).faults == ()
    return found
