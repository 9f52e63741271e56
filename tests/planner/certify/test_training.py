"""The certifier of training plans: valid plans pass, and each fault is told in its sentence."""

import re
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.graph import Graph
from headway.core.plan.training import TrainingPlan
from headway.core.training_cluster import TrainingCluster
from headway.planner.certify.training.certificate import find_training_violations
from headway.planner.certify.training.splits import lies, loop_sizes, partial_axes, split_faults
from headway.planner.intra.strategies import strategies
from tests.planner.certify.mutants import MUTANTS
from tests.planner.certify.planned import captured, cluster_of, mesh_of, plan_of

GPT = "alpa-gpt3-350m-small"
MODELS = (GPT, "wide-resnet-250m-small", "alpa-moe-380m-small")
CLUSTER = cluster_of(2, 4)
MESHES = {
    "data parallel on 2x4": [mesh_of(2, 4, 8, 1)],
    "one stage on two axes": [mesh_of(2, 4, 2, 4)],
    "two stages": [mesh_of(1, 4, 2, 2), mesh_of(1, 4, 4, 1)],
    "three stages, uneven": [mesh_of(1, 2, 1, 2), mesh_of(1, 2, 2, 1), mesh_of(1, 4, 1, 4)],
}


def violations(plan: TrainingPlan, graph: Graph, cluster: TrainingCluster = CLUSTER) -> list[str]:
    return find_training_violations(plan, graph, cluster, graph_hash="captured")


@cache
def two_stages() -> TrainingPlan:
    return plan_of(captured(GPT), CLUSTER, meshes=MESHES["two stages"])


@pytest.mark.parametrize("layout", MESHES)
@pytest.mark.parametrize("model", MODELS)
def test_valid_plans_pass(model: str, layout: str) -> None:
    graph = captured(model)
    for zero_stage, layers, precision in ((0, 0, "float32"), (1, 2, "bfloat16"), (2, 0, "float16"), (3, 3, "float32")):
        plan = plan_of(graph, CLUSTER, meshes=MESHES[layout], zero_stage=zero_stage, layers=layers, precision=precision)
        assert violations(plan, graph) == []


@pytest.mark.parametrize("fault", MUTANTS)
def test_each_fault_is_told(fault: str) -> None:
    mutate, told = MUTANTS[fault]
    found = violations(mutate(two_stages(), captured(GPT)), captured(GPT))
    assert any(re.search(told, sentence) for sentence in found), found


def test_a_cluster_of_less_memory_or_other_links_is_told() -> None:
    smaller = replace(CLUSTER, groups=(replace(CLUSTER.groups[0], memory_bytes=100_000),))
    plan = replace(two_stages(), cluster=smaller)
    assert any("is for 2x4xV100-16, and the cluster is 2x4xV100-16" in each for each in violations(plan, captured(GPT)))
    told = violations(plan, captured(GPT), smaller)
    most = two_stages().stages[0].memory.total_bytes
    assert any("Stage 0 takes" in each and f"{most - 100_000} bytes too much" in each for each in told)


@pytest.mark.parametrize("model", MODELS)
def test_every_strategy_of_the_search_is_one_that_the_certifier_allows(model: str) -> None:
    """Two derivations of the same: how results lie when loops are split."""
    graph = captured(model)
    tensors = graph.tensors_by_name()
    for mesh_shape in ((2, 4), (4, 1), (8, 1)):
        for operator in graph.operators:
            for strategy in strategies(operator, tensors, mesh_shape):
                splits = tuple(loop or "" for loop in strategy.loops)
                assert list(split_faults(operator, splits, mesh_shape)) == []
                accesses = operator.space.writes if operator.space else ()
                for number, (access, spec) in enumerate(zip(accesses, strategy.writes, strict=True)):
                    assert lies(access, tensors[access.tensor], splits, loop_sizes(operator)) == spec
                    joined = {part.axis for part in strategy.partial if part.output == number and part.how != "moments"}
                    assert partial_axes(access, splits) == joined


@pytest.mark.parametrize(
    ("model", "told"), [("wide-resnet-250m-small", "windows of"), ("alpa-moe-380m-small", "is found in the data")]
)
def test_loops_that_cannot_be_split_are_told(model: str, told: str) -> None:
    graph = captured(model)
    found = [
        (operator.name, fault)
        for operator in graph.operators
        for loop, size in loop_sizes(operator).items()
        if size % 2 == 0
        for fault in split_faults(operator, (loop,), (2,))
    ]
    allowed = {
        (operator.name, loop)
        for operator in graph.operators
        for strategy in strategies(operator, graph.tensors_by_name(), (2,))
        for loop in strategy.loops
    }
    assert any(told in fault for _, fault in found)
    assert not any((name, re.findall("'(.*?)'", fault)[0]) in allowed for name, fault in found)


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, 10**6))
def test_no_operator_can_leave_its_stage(at: int) -> None:
    """Not even with its sharding."""
    plan, graph = two_stages(), captured(GPT)
    name = graph.operators[at % len(graph.operators)].name
    order = {operator.name: position for position, operator in enumerate(graph.operators)}
    source = next(number for number, stage in enumerate(plan.stages) if name in stage.operators)
    stages = list(plan.stages)
    sharding = next(each for each in stages[source].shardings if each.operator == name)
    for number, stage in enumerate(plan.stages):
        names = {*stage.operators, name} if number != source else {*stage.operators} - {name}
        kept = {each.operator: each for each in (*stage.shardings, sharding)}
        operators = tuple(sorted(names, key=order.__getitem__))
        stages[number] = replace(stage, operators=operators, shardings=tuple(kept[each] for each in operators))
    assert violations(replace(plan, stages=tuple(stages)), graph)


@settings(max_examples=60, deadline=None)
@given(
    part=st.sampled_from(["weights", "gradients", "optimizer", "activations", "workspace"]),
    share=st.floats(-0.5, 0.5),
    number=st.integers(0, 1),
)
def test_memory_may_be_two_percent_off_and_no_more(part: str, share: float, number: int) -> None:
    plan = two_stages()
    memory = plan.stages[number].memory
    change = int(share * memory.total_bytes)
    value = getattr(memory, f"{part}_bytes") + change
    stages = list(plan.stages)
    stages[number] = replace(stages[number], memory=replace(memory, **{f"{part}_bytes": value}))
    found = violations(replace(plan, stages=tuple(stages)), captured(GPT))
    assert bool(found) == (abs(change) > 0.02 * memory.total_bytes or value < 0)
    assert all(f"Stage {number}" in each and part in each for each in found)
