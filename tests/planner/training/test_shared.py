"""A table that is the head too: held once where it can be, and joined once an iteration where two stages hold it."""

from dataclasses import replace

import pytest

from headway.core.batching import at_batch
from headway.core.gradients import contributions
from headway.core.plan.training import TrainingPlan
from headway.core.precision import Precision, cast_graph
from headway.core.training_layout_file import read_training_layout
from headway.planner.certify.training.certificate import find_training_violations
from headway.planner.intra.options import AxisRole
from headway.planner.training.plan import fill_training_layout, make_training_plan
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.space import SearchSpace
from tests.planner.training.steps import COSTS, nodes_of, problem_of, tied

TABLE = "tokens.weight"
NODES = nodes_of(2, 1)
ADAM = 4 + 4 + 8  # bytes of a float32 parameter with its gradient and moments


def problem_with(num_stages: int, **changes: object) -> TrainingProblem:
    space = SearchSpace(num_stages=num_stages, recomputes=(False,))
    return problem_of(NODES, model="tied", graph=tied(), batch=64, space=space, **changes)


def planned(problem: TrainingProblem) -> TrainingPlan:
    return make_training_plan(
        problem,
        COSTS,
        method="alpa",
        nonce="test",
        report=lambda _: None,
        should_stop=lambda: False,
        to_document=lambda _: {},
    )


def violations(plan: TrainingPlan) -> list[str]:
    step = cast_graph(at_batch(tied(), plan.micro_batch), Precision(plan.precision))
    return find_training_violations(plan, step, plan.cluster, graph_hash=tied().content_hash)


def table_bytes() -> int:
    return tied().tensors_by_name()[TABLE].num_elements * 4


def test_two_stages_hold_a_copy_each_and_join_its_gradient_once_an_iteration() -> None:
    plan = planned(problem_with(2))
    assert plan.shared_parameters == {TABLE: (0, 1)}
    parts = contributions(tied())
    assert set(parts.values()) == {TABLE}
    assert not {each.tensor for stage in plan.stages for each in stage.received} & parts.keys()
    least_s = table_bytes() / NODES.network.bytes_per_s
    assert all(stage.once_s > least_s for stage in plan.stages)
    assert violations(plan) == []


def test_one_stage_holds_it_once() -> None:
    plan = planned(replace(problem_with(1), cluster=problem_of(nodes_of(1, 1)).cluster))
    [stage] = plan.stages
    assert plan.shared_parameters == {}
    memory = stage.memory
    states = memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes
    assert states == ADAM * tied().parameters
    assert violations(plan) == []


def test_of_one_device_that_has_room_for_one_copy_a_plan_is_found() -> None:
    one = problem_of(nodes_of(1, 1)).cluster
    needed = planned(replace(problem_with(1), cluster=one)).stages[0].memory.total_bytes
    tight = replace(one, groups=(replace(one.groups[0], memory_bytes=needed + table_bytes()),))
    assert planned(replace(problem_with(1), cluster=tight)).stages


def test_devices_that_share_examples_join_the_gradients_of_a_table_too() -> None:
    data = (AxisRole.DATA, AxisRole.DATA)
    space = SearchSpace(num_stages=1, axis_roles=data, zero_stages=(0,), recomputes=(False,))
    plan = planned(replace(problem_with(1), space=space))
    all_reduce_s = tied().parameters * 4 / NODES.network.bytes_per_s
    assert plan.stages[0].once_s > all_reduce_s * (1 - 1e-9)
    assert violations(plan) == []


def test_what_a_search_found_costs_the_same_when_it_is_given() -> None:
    plan = planned(problem_with(2))
    sizes = [len(stage.layers) for stage in plan.stages]
    text = "\n".join(
        [
            "micro_batches: 4\nstages:",
            f"- {{layers: 0-{sizes[0] - 1}, mesh: {plan.stages[0].mesh}, recompute: false}}",
            f"- {{layers: {sizes[0]}-{sum(sizes) - 1}, mesh: {plan.stages[1].mesh}, recompute: false}}",
        ]
    )
    given = fill_training_layout(problem_with(2), COSTS, read_training_layout(text, file="mine.yaml"), nonce="test")
    assert given.iteration_s == pytest.approx(plan.iteration_s)


def test_stages_that_have_no_time_to_join_it_or_receive_it_each_time_are_told() -> None:
    plan = planned(problem_with(2))
    first, second = plan.stages
    told = violations(replace(plan, stages=(first, replace(second, once_s=1e-9))))
    assert any(f"Stage 1 shares '{TABLE}' with 1 other" in each for each in told)
    part = next(name for name in contributions(tied()) if name.startswith("mm"))
    extra = replace(second.received[0], tensor=part)
    told = violations(replace(plan, stages=(replace(first, received=(*first.received, extra)), second)))
    assert any(f"receives '{part}', which no operator of it reads" in each for each in told)
