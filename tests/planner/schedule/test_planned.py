"""A training plan names its schedule, is simulated with it, and is told what others would take."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from headway.core.catalogue import built_in_catalogue
from headway.core.codec import to_document
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.graph_file import graph_bytes
from headway.core.plan.document import plan_from_document
from headway.core.plan.training import TrainingPlan, pipeline_s
from headway.core.training_cluster import TrainingCluster
from headway.core.training_search import GRAPH, SCHEDULES, TrainingSearch
from headway.planner.certify.training.task_orders import task_order_violations
from headway.planner.graphpipe.schedule import ScheduledStage, iteration_s, kfkb
from headway.planner.jobs.training import run
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.planned import schedule_plan
from headway.planner.schedule.weight_gradients import weight_operators, with_weight_gradients
from tests.core.plans import GIB, TRAINING
from tests.planner.training.steps import COSTS, mlp, nodes_of

LIMITS = Limits()


def plan_of(*backward_s: float, handover_s: float = 0.0, count: int = 8) -> TrainingPlan:
    """A chain of stages that keep half a GiB of each micro-batch, and have 8 GiB for them."""
    first = TRAINING.stages[0]
    stages = tuple(
        replace(
            first,
            first_device=4 * number,
            in_flight=min(count, len(backward_s) - number),
            forward_s=seconds / 2,
            backward_s=seconds,
            weight_gradients_s=seconds / 2,
            handover_s=0.0 if number == len(backward_s) - 1 else handover_s,
            memory=replace(
                first.memory,
                optimizer_bytes=0,
                activations_bytes=GIB // 2 * min(count, len(backward_s) - number),
            ),
        )
        for number, seconds in enumerate(backward_s)
    )
    return replace(TRAINING, stages=stages, num_micro_batches=count)


def graph_plan() -> TrainingPlan:
    """Two branches that a third stage joins."""
    plan = plan_of(0.02, 0.03, 0.02, count=6)
    branch, other, last = plan.stages
    stages = (replace(branch, successors=(2,), in_flight=2), replace(other, successors=(2,), in_flight=2), last)
    return replace(plan, stages=stages)


def request(schedule: str, *, explains: bool = False, count: int = 8) -> dict[str, Any]:
    search = TrainingSearch(
        model="mlp",
        batch=1 << 12,
        cluster=TrainingCluster(groups=(nodes_of(1, 4),)),
        devices=(built_in_catalogue().devices["V100-16"],),
        precision="float32",
        micro_batches=(count,),
        method="inter-only",
        schedule=schedule,
        explains=explains,
        files={GRAPH: base64.b64encode(graph_bytes(mlp())).decode()},
    )
    document: dict[str, Any] = to_document(search)
    return document


def searched(schedule: str, *, explains: bool = False) -> TrainingPlan:
    found = run(request(schedule, explains=explains), report=lambda _: None, should_stop=lambda: False, resume=None)
    return plan_from_document(TrainingPlan, found)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("handover_s", [0.0, 0.004])
def test_every_schedule_is_certified_and_counts_what_it_holds(name: str, handover_s: float) -> None:
    made = schedule_plan(plan_of(0.02, 0.03, 0.02, 0.025, handover_s=handover_s), name, limits=LIMITS)
    assert made.schedule is not None
    assert list(task_order_violations(made)) == []
    assert name in (made.schedule.name, "auto")
    assert made.schedule.iteration_s == pytest.approx(made.schedule.makespan_s + 0.05)
    for stage in made.stages:
        assert stage.memory.activations_bytes == stage.in_flight * GIB // 2


@pytest.mark.parametrize(("name", "ahead"), [("1f1b", None), ("gpipe", 8)])
def test_published_schedules_take_what_another_simulator_finds(name: str, ahead: int | None) -> None:
    plan = plan_of(0.02, 0.03, 0.02, 0.025)
    stages = [
        ScheduledStage(
            micro_batch=1,
            forward_s=stage.forward_s,
            backward_s=stage.backward_s,
            passes=kfkb(8, warm_up=ahead or 4 - number),
            successors=(number + 1,) if number < 3 else (),
        )
        for number, stage in enumerate(plan.stages)
    ]
    made = schedule_plan(plan, name, limits=LIMITS)
    assert made.schedule is not None
    assert made.schedule.makespan_s == pytest.approx(iteration_s(stages))


def test_equal_stages_take_what_equation_3_2_says_with_1f1b_and_less_with_split_gradients() -> None:
    plan = plan_of(*[0.02] * 4)
    whole, split, found = (schedule_plan(plan, name, limits=LIMITS) for name in ("1f1b", "zb-h2", "tessel"))
    assert whole.schedule is not None
    assert split.schedule is not None
    assert found.schedule is not None
    assert whole.schedule.makespan_s == pytest.approx(pipeline_s(plan.stages, 8))
    assert split.schedule.makespan_s < whole.schedule.makespan_s
    assert found.schedule.makespan_s <= split.schedule.makespan_s * (1 + 1e-9)


def test_auto_takes_the_fastest_and_tells_of_all_others() -> None:
    plan = plan_of(*[0.02] * 4)
    made = schedule_plan(plan, "auto", limits=LIMITS)
    assert made.schedule is not None
    others = {each.name: each for each in made.schedule.others}
    assert {*others, made.schedule.name} == {*SCHEDULES[:-1], "interleaved-1f1b"}
    for name in sorted(set(SCHEDULES[:-1]) - {made.schedule.name}):
        alone = schedule_plan(plan, name, limits=LIMITS).schedule
        assert alone is not None
        assert others[name].iteration_s == pytest.approx(alone.iteration_s)
        assert made.schedule.iteration_s <= alone.iteration_s * (1 + 1e-9)
    assert "two runs of layers" in others["interleaved-1f1b"].why_not
    assert (others["interleaved-1f1b"].bubble or 1.0) < (others["1f1b"].bubble or 0.0)


def test_what_does_not_fit_is_told_with_its_stage_and_bytes() -> None:
    plan = plan_of(*[0.02] * 4, count=16)
    with pytest.raises(FailedPreconditionError, match=r"stage 0 would hold activations of 8.0 GiB, and has 7"):
        schedule_plan(_with_room(plan, 7 * GIB), "gpipe", limits=LIMITS)
    made = schedule_plan(_with_room(plan, 2 * GIB), "auto", limits=LIMITS)
    assert max(stage.in_flight for stage in made.stages) <= 4


def test_stages_of_unlike_room_are_told_apart() -> None:
    """The last stage has room for one micro-batch, which is what 1F1B holds there."""
    plan = plan_of(0.02, 0.02)
    first, last = plan.stages
    crowded = replace(last.memory, weights_bytes=last.memory.weights_bytes + 15 * GIB // 2)
    made = schedule_plan(replace(plan, stages=(first, replace(last, memory=crowded))), "tessel", limits=LIMITS)
    assert made.stages[1].in_flight == 1
    assert made.stages[0].in_flight > 1


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "tessel"])
def test_branches_run_side_by_side(name: str) -> None:
    made = schedule_plan(graph_plan(), name, limits=LIMITS)
    assert list(task_order_violations(made)) == []
    assert made.schedule is not None
    assert made.schedule.makespan_s <= pipeline_s(made.stages, 6) * (1 + 1e-9)


def test_zero_bubble_schedules_need_something_to_split() -> None:
    plan = plan_of(0.02, 0.02)
    whole = replace(plan, stages=tuple(replace(each, weight_gradients_s=0.0) for each in plan.stages))
    with pytest.raises(FailedPreconditionError, match="Stage 1 has no gradients of weights"):
        schedule_plan(whole, "zb-h1", limits=LIMITS)
    assert schedule_plan(whole, "tessel", limits=LIMITS).schedule is not None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("B0", "B1", "B0 is missing"),
        ("F0 F1", "F1 F0", "in flight"),
        ("F0 F1 F2 F3 B0", "B0 F0 F1 F2 F3", "in flight"),
        ("F7", "", "F7 is missing"),
    ],
)
def test_changed_orders_are_refused(old: str, new: str, said: str) -> None:
    made = schedule_plan(plan_of(*[0.02] * 4), "1f1b", limits=LIMITS)
    assert made.schedule is not None
    first, *others = made.schedule.orders
    changed = replace(made, schedule=replace(made.schedule, orders=(first.replace(old, new, 1), *others)))
    found = list(task_order_violations(changed))
    assert found != []
    assert said == "in flight" or said in found[0]


def test_figures_that_do_not_hold_are_refused() -> None:
    made = schedule_plan(plan_of(*[0.02] * 4), "zb-h1", limits=LIMITS)
    assert made.schedule is not None
    for field in ("makespan_s", "iteration_s", "bubble", "period_s"):
        changed = replace(made.schedule, **{field: 0.9 * getattr(made.schedule, field)})
        assert any(field.split("_")[0] in each for each in task_order_violations(replace(made, schedule=changed)))
    more = (replace(made.stages[0], in_flight=made.stages[0].in_flight + 1), *made.stages[1:])
    assert "in flight" in next(iter(task_order_violations(replace(made, stages=more))))


def test_gradients_of_weights_are_what_nothing_waits_for() -> None:
    """Of each linear layer the product that makes the weight's gradient and the sum that makes the bias's."""
    graph = mlp()
    by_output = {operator.outputs[0]: operator.name for operator in graph.operators}
    assert weight_operators(graph) == {by_output[name] for name in graph.gradients}


def test_a_third_of_a_linear_layers_work_is_for_its_weights() -> None:
    plan = searched("1f1b")
    assert plan.schedule is not None
    assert plan.schedule.name == "1f1b"
    again = with_weight_gradients(plan, mlp(), COSTS)
    assert len(plan.stages) > 1
    for stage, other in zip(plan.stages[1:], again.stages[1:], strict=True):
        assert stage.weight_gradients_s == pytest.approx(stage.backward_s / 2, rel=0.2)
        assert other.weight_gradients_s > 0


def test_plans_are_searched_certified_and_explained_with_their_schedule() -> None:
    plan = searched("auto")
    assert plan.schedule is not None
    fixed = searched("1f1b").schedule
    assert fixed is not None
    assert plan.schedule.iteration_s <= fixed.iteration_s * (1 + 1e-9)
    assert len(plan.schedule.others) == len(SCHEDULES) - 1


@pytest.mark.parametrize(("name", "said"), [("fast", "no schedule 'fast'"), ("zb-v", "several runs of layers")])
def test_other_schedules_are_refused_before_the_search(name: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        searched(name)


def _with_room(plan: TrainingPlan, room: int) -> TrainingPlan:
    """Devices with so much for activations."""
    group = plan.cluster.groups[0]
    others = plan.stages[0].memory.total_bytes - plan.stages[0].memory.activations_bytes
    return replace(plan, cluster=TrainingCluster(groups=(replace(group, memory_bytes=others + room),)))
