"""Plans whose stages form a graph, of a model with branches."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from headway.core.batching import at_batch
from headway.core.graph import Graph
from headway.core.plan.training import TrainingPlan
from headway.core.precision import cast_graph
from headway.core.search_progress import SearchProgress
from headway.core.training_cluster import NodeGroup, TrainingCluster
from headway.planner.certify.training.certificate import find_training_violations
from headway.planner.training.alpa import AlpaSearch
from headway.planner.training.graph_cut import layer_flows
from headway.planner.training.plan import make_training_plan
from headway.planner.training.problem import TrainingProblem
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.trace import trace
from tests.planner.training.steps import BATCH, COSTS, HIDDEN, Mlp, nodes_of


class Branches(nn.Module):
    """Two chains of blocks side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(Mlp().blocks for _ in range(2))
        self.out = nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        ends = []
        for branch, value in zip(self.branches, (x, y), strict=True):
            for block in branch:  # type: ignore[attr-defined]
                value = block(value)  # noqa: PLW2901 - as networks do
            ends.append(value)
        return self.out(torch.cat(ends, dim=-1)).square().mean()


@cache
def branches() -> Graph:
    inputs = (torch.zeros(BATCH, HIDDEN), torch.zeros(BATCH, HIDDEN))
    traced = trace(Branches(), inputs, train=True, report=lambda _: None)
    return build_graph(traced, name="branches", is_training=True, batch=BATCH)


def problem_of(nodes: NodeGroup, *, batch: int = 64) -> TrainingProblem:
    return TrainingProblem(
        model="branches", graph=branches(), cluster=TrainingCluster(groups=(nodes,)), batch=batch, micro_batches=(8,)
    )


def plan_of(problem: TrainingProblem, method: str, *, explains: bool = False) -> TrainingPlan:
    def ignore(_: SearchProgress) -> None:
        return

    return make_training_plan(
        problem,
        COSTS,
        method=method,
        explains=explains,
        nonce="0",
        report=ignore,
        should_stop=lambda: False,
        to_document=lambda _: {},
    )


def faults_of(plan: TrainingPlan, problem: TrainingProblem) -> list[str]:
    step = cast_graph(at_batch(problem.graph, plan.micro_batch), problem.precision)
    return find_training_violations(plan, step, problem.cluster, graph_hash=problem.graph.content_hash)


@cache
def planned() -> tuple[TrainingProblem, TrainingPlan]:
    """On slow links and with little memory, so that the model has to be cut."""
    nodes = replace(nodes_of(memory_bytes=60 * 10**6), devices_per_node=8)
    nodes = replace(nodes, link=replace(nodes.link, bytes_per_s=1e9))
    problem = problem_of(nodes)
    return problem, plan_of(problem, "graphpipe")


def test_branches_run_side_by_side() -> None:
    problem, plan = planned()
    assert faults_of(plan, problem) == []
    assert plan.depth < len(plan.stages)
    assert [stage.in_flight for stage in plan.stages if not stage.successors] == [1]


def test_a_graph_is_no_slower_than_a_chain() -> None:
    problem, plan = planned()
    chain = plan_of(replace(problem, num_layers=8), "alpa")
    assert chain.depth == len(chain.stages) > plan.depth
    assert plan.iteration_s < chain.iteration_s


def test_auto_is_no_slower_than_any_method() -> None:
    problem, plan = planned()
    auto = plan_of(problem, "auto")
    assert auto.iteration_s <= plan.iteration_s
    assert {"alpa", "graphpipe", "terapipe"} <= {each.name for each in auto.alternatives}
    numbers = {each.name: (each.iteration_s, each.least_s, each.missing_bytes) for each in auto.alternatives}
    assert [name for name, known in numbers.items() if known == (None, None, None)] == ["terapipe"]  # no language model
    assert any("graphpipe" in reason for reason in auto.reasons)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda stage: replace(stage, successors=()), "does not wait for it"),
        (lambda stage: replace(stage, successors=(0,)), "is none of the"),
        (lambda stage: replace(stage, in_flight=0), "1F1B needs"),
    ],
)
def test_the_certifier_finds_faults_of_graphs(change: object, fault: str) -> None:
    problem, plan = planned()
    assert callable(change)
    broken = replace(plan, stages=(change(plan.stages[0]), *plan.stages[1:]))
    assert any(fault in each for each in faults_of(broken, problem))


def test_the_certifier_finds_an_iteration_below_the_longest_way() -> None:
    problem, plan = planned()
    assert any("equation 3.2" in fault for fault in faults_of(replace(plan, iteration_s=plan.iteration_s / 2), problem))


def test_a_graph_says_what_would_change_the_choice() -> None:
    """Each with what the same search finds on the changed cluster."""
    problem, plan = planned()
    explained = plan_of(problem, "graphpipe", explains=True)
    told = {(each.what, each.factor): each for each in explained.sensitivities}
    assert {what for what, _ in told} == {"memory", "batch", "node link", "network"}
    nodes = problem.cluster.groups[0]
    for what, other in (
        ("memory", replace(nodes, memory_bytes=2 * nodes.memory_bytes)),
        ("node link", replace(nodes, link=replace(nodes.link, bytes_per_s=2 * nodes.link.bytes_per_s))),
    ):
        again = plan_of(replace(problem, cluster=TrainingCluster(groups=(other,))), "graphpipe")
        assert told[what, 2.0].iteration_s == pytest.approx(again.iteration_s)
        assert again.iteration_s <= plan.iteration_s
    assert "Memory " in " ".join(explained.reasons)
    assert {"data-parallel", "megatron", "alpa", "graphpipe"} <= {each.name for each in explained.alternatives}


def test_chains_and_graphs_are_charged_alike_for_what_they_send() -> None:
    """A tensor that passes by a stage goes straight to its reader, whoever runs beside or between."""
    problem, _ = planned()
    alpa = AlpaSearch(replace(problem, num_layers=8), COSTS)
    step = alpa.tables(8).step
    flows = layer_flows(step)
    for last in range(len(step.layers)):
        for first in range(last + 1):
            read = [
                flow.bytes_per_sample for flow in flows if first <= flow.producer <= last and max(flow.consumers) > last
            ]
            assert step.sent_bytes(first, last) == sum(read)
