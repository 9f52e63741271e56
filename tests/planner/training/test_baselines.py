"""Baselines are the best of smaller spaces, and their plans pass the certifier."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from headway.core.batching import at_batch
from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError
from headway.core.plan.training import TrainingPlan
from headway.core.precision import Precision, cast_graph
from headway.core.training_search import METHODS
from headway.planner.certify.training.certificate import find_training_violations
from headway.planner.training.baselines import BASELINES, narrowed
from headway.planner.training.plan import make_training_plan
from headway.planner.training.problem import TrainingProblem
from tests.planner.training.steps import COSTS, nodes_of, problem_of

TWO_NODES = problem_of(nodes_of(2, 2), precision=Precision.FLOAT16)


def plan_by(
    method: str,
    problem: TrainingProblem = TWO_NODES,
    *,
    explains: bool = False,
    stops: Callable[[], bool] = lambda: False,
) -> TrainingPlan:
    return make_training_plan(
        problem,
        COSTS,
        method=method,
        explains=explains,
        nonce="test",
        report=lambda _: None,
        should_stop=stops,
        to_document=to_document,
    )


plan_of = cache(plan_by)


def test_every_method_that_a_user_may_name_is_there() -> None:
    assert ("auto", "alpa", "graphpipe", "terapipe", *BASELINES) == METHODS


@pytest.mark.parametrize("method", [method for method in METHODS if method != "terapipe"])
def test_the_plan_of_every_method_is_certified(method: str) -> None:
    plan = plan_of(method)
    step = cast_graph(at_batch(TWO_NODES.graph, plan.micro_batch), TWO_NODES.precision)
    assert plan.method == method
    assert not find_training_violations(plan, step, TWO_NODES.cluster, graph_hash=TWO_NODES.graph.content_hash)


@pytest.mark.parametrize("method", sorted(BASELINES.keys() - {"equal-operator"}))
def test_no_smaller_space_has_a_better_plan(method: str) -> None:
    assert plan_of(method).iteration_s >= plan_of("alpa").iteration_s * (1 - 1e-9)


@pytest.mark.parametrize(("method", "level"), [("data-parallel", 0), ("zero-2", 2), ("zero-3", 3)])
def test_data_parallelism_is_one_stage_that_splits_examples_alone(method: str, level: int) -> None:
    plan = plan_of(method)
    [stage] = plan.stages
    assert {each.zero_stage for each in stage.parameters} == {level}
    assert all(each.spec.is_replicated for each in stage.parameters)


def test_zero_needs_less_memory_the_higher_it_is() -> None:
    memory = [plan_of(method).stages[0].memory.total_bytes for method in ("data-parallel", "zero-2", "zero-3")]
    assert memory == sorted(memory, reverse=True)
    assert len(set(memory)) == 3


def test_megatron_has_equal_stages_with_the_model_split_inside_nodes() -> None:
    plan = plan_of("megatron")
    sizes = {len(stage.layers) for stage in plan.stages}
    assert len({stage.mesh for stage in plan.stages}) == 1
    assert plan.stages[0].mesh.shape[1] <= 2
    assert max(sizes) - min(sizes) <= 1


def test_one_stage_and_stages_of_one_device_are_the_ends_of_what_alpa_searches() -> None:
    assert len(plan_of("intra-only").stages) == 1
    assert [stage.mesh.num_devices for stage in plan_of("inter-only").stages] == [1] * 4


def test_pipelines_of_data_parallel_stages_keep_parameters_whole() -> None:
    plan = plan_of("pp-dp")
    assert all(each.spec.is_replicated and each.zero_stage == 0 for stage in plan.stages for each in stage.parameters)


def test_equal_layers_differ_by_one_at_most() -> None:
    sizes = [len(stage.layers) for stage in plan_of("equal-layer").stages]
    assert max(sizes) - min(sizes) <= 1


def test_equal_operators_cut_the_step_otherwise() -> None:
    layers = {method: plan_of(method).stages[0].layers for method in ("equal-operator", "intra-only")}
    assert max(layers["equal-operator"]) - min(layers["equal-operator"]) <= 1
    assert layers["equal-operator"] != layers["intra-only"]


def test_recomputing_that_is_not_wanted_is_not_in_a_baseline_either() -> None:
    problem = replace(TWO_NODES, space=replace(TWO_NODES.space, recomputes=(False,)))
    assert all(narrowed(problem, baseline).space.recomputes == (False,) for baseline in BASELINES.values())


def test_an_unknown_method_is_told_with_those_there_are() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"no method 'deepspeed'.*auto, alpa, graphpipe, terapipe, data-parallel"
    ):
        plan_by("deepspeed")
