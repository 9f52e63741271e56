"""Stages of a graph with micro-batches of sizes of their own."""

import json
from dataclasses import replace
from functools import cache
from io import StringIO

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from headway.cli.training.document import training_document
from headway.cli.training.view import training_view
from headway.core.batching import at_batch
from headway.core.codec import from_document, to_document
from headway.core.errors import FailedPreconditionError
from headway.core.exports.dtensor import dtensor_placements
from headway.core.exports.parallelism import read_parallelism
from headway.core.graph import Graph
from headway.core.plan.training import TrainingPlan
from headway.core.precision import cast_graph
from headway.core.training_cluster import TrainingCluster
from headway.core.training_placement import stage_tasks, training_placement
from headway.planner.certify.training.certificate import find_training_violations
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.planned import schedule_plan
from headway.planner.training.plan import make_training_plan
from headway.planner.training.problem import TrainingProblem
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.trace import trace
from tests.planner.training.steps import BATCH, COSTS, HIDDEN, Block, nodes_of


class Uneven(nn.Module):
    """A wide branch beside a narrow one, whose activations are large and whose work is small."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.ModuleList(Block() for _ in range(4))
        self.narrow = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.out = nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for block in self.wide:
            x = block(x)
        for layer in self.narrow:
            y = torch.relu(layer(y))
        return self.out(torch.cat([x, y], dim=-1)).square().mean()


@cache
def uneven() -> Graph:
    inputs = (torch.zeros(BATCH, HIDDEN), torch.zeros(BATCH, HIDDEN))
    traced = trace(Uneven(), inputs, train=True, report=lambda _: None)
    return build_graph(traced, name="uneven", is_training=True, batch=BATCH)


@cache
def planned() -> tuple[TrainingProblem, TrainingPlan]:
    nodes = nodes_of(devices_per_node=8, memory_bytes=60 * 10**6)
    nodes = replace(nodes, link=replace(nodes.link, bytes_per_s=1e9))
    problem = TrainingProblem(
        model="uneven",
        graph=uneven(),
        cluster=TrainingCluster(groups=(nodes,)),
        batch=512,
        micro_batches=(16, 32),
    )
    plan = make_training_plan(
        problem,
        COSTS,
        method="graphpipe",
        nonce="0",
        report=lambda _: None,
        should_stop=lambda: False,
        to_document=lambda _: {},
    )
    return problem, plan


def faults_of(plan: TrainingPlan) -> list[str]:
    problem, _ = planned()
    step = cast_graph(at_batch(problem.graph, plan.micro_batch), problem.precision)
    return find_training_violations(plan, step, problem.cluster, graph_hash=problem.graph.content_hash)


def changed(plan: TrainingPlan, number: int, **figures: int | None) -> TrainingPlan:
    stages = list(plan.stages)
    stages[number] = replace(stages[number], **figures)  # type: ignore[arg-type]
    return replace(plan, stages=tuple(stages))


def smaller(plan: TrainingPlan) -> int:
    """A stage whose micro-batches are smaller than the plan's."""
    return next(i for i, stage in enumerate(plan.stages) if plan.micro_batch_of(stage) < plan.micro_batch)


def test_stages_with_sizes_of_their_own_are_faster_and_certified() -> None:
    _, plan = planned()
    assert plan.has_own_sizes
    assert faults_of(plan) == []
    assert {plan.batch % plan.micro_batch_of(stage) for stage in plan.stages} == {0}
    alike_s = next(each.iteration_s for each in plan.alternatives if "one size" in each.name)
    assert alike_s is not None
    assert plan.iteration_s < alike_s
    assert any("less than all with one size" in reason for reason in plan.reasons)
    assert from_document(TrainingPlan, to_document(plan)) == plan


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "tessel"])
def test_schedules_run_the_micro_batches_of_each_stage(name: str) -> None:
    _, plan = planned()
    if name == "gpipe":  # all activations of a batch at once
        plan = replace(plan, cluster=TrainingCluster(groups=(replace(plan.cluster.groups[0], memory_bytes=10**9),)))
    scheduled = schedule_plan(plan, name, limits=Limits(effort=0.05))
    assert scheduled.schedule is not None
    orders = [order.split() for order in scheduled.schedule.orders]
    assert [len(order) for order in orders] == [2 * plan.num_passes(stage) for stage in plan.stages]
    if name != "gpipe":
        assert faults_of(scheduled) == []
        assert scheduled.schedule.iteration_s <= plan.iteration_s * (1 + 1e-9)


def test_a_larger_micro_batch_waits_for_all_its_examples() -> None:
    _, plan = planned()
    tasks, placement = stage_tasks(plan), training_placement(plan)
    number = smaller(plan)
    parts = [at for at, task in enumerate(tasks) if task.stage == number and task.letter == "F"]
    assert len(parts) == plan.micro_batch // plan.micro_batch_of(plan.stages[number])
    assert [placement.tasks[at].name for at in parts] == [f"F{number}.{part}" for part in range(len(parts))]
    others = {i for i, later in enumerate(plan.successors) if number in later} | set(plan.successors[number])
    for other in others:
        whole = next(at for at, task in enumerate(tasks) if task.stage == other and task.letter == "F")
        joined = {(each.before, each.after) for each in placement.dependencies}
        assert all((whole, part) in joined or (part, whole) in joined for part in parts)


def test_the_certifier_finds_faults_of_sizes() -> None:
    _, plan = planned()
    number = smaller(plan)
    first = next(i for i, stage in enumerate(plan.stages) if stage.in_flight > 1)
    scheduled = schedule_plan(plan, "1f1b", limits=Limits())
    assert scheduled.schedule is not None
    order = scheduled.schedule.orders[number].split()
    missing = " ".join(order[:-1])
    orders = tuple(missing if i == number else each for i, each in enumerate(scheduled.schedule.orders))
    for broken, said in (
        (changed(plan, number, micro_batch=3), "do not divide"),
        (changed(plan, number, micro_batch=1), "by the work of its stages"),
        (changed(plan, first, in_flight=0), "0 micro-batches are in flight"),
        (replace(plan, iteration_s=plan.iteration_s / 2), "by the work of its stages"),
        (replace(scheduled, schedule=replace(scheduled.schedule, orders=orders)), "is missing from the schedule"),
    ):
        assert any(said in fault for fault in faults_of(broken)), said


def test_sizes_are_shown_and_tools_without_them_refuse() -> None:
    problem, plan = planned()
    console = Console(width=200, record=True, file=StringIO())
    console.print(training_view(plan))
    assert "micro-batch" in console.export_text().splitlines()[4]
    sizes = [stage["micro_batch"] for stage in training_document(plan, ())["stages"]]
    assert sizes == [plan.micro_batch_of(stage) for stage in plan.stages]
    assert len(set(sizes)) == 2
    step = at_batch(problem.graph, plan.micro_batch)
    with pytest.raises(FailedPreconditionError):
        read_parallelism(plan, step, "torchtitan")
    assert [stage["micro_batch"] for stage in json.loads(dtensor_placements(plan, step))["stages"]] == sizes
