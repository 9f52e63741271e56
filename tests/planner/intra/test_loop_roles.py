"""What operators' loops run along: examples, tokens, experts, and all else; and plans that leave some of it whole."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
import torch

from headway.core.graph import Graph, OperatorKind
from headway.core.precision import Precision
from headway.planner.intra.loop_roles import LoopRole
from headway.planner.training.alpa import AlpaSearch, Found
from headway.planner.training.alternatives import alternatives
from headway.planner.training.baselines import BASELINES, narrowed
from headway.planner.training.narrower import best_with_fewer_splits
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.shape import shape_of
from headway.planner.training.space import SearchSpace, StageSize
from headway.planner.training.step import training_graph
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.trace import trace
from headway.profiler.zoo.families.gshard import GShardConfig
from headway.profiler.zoo.networks.gshard import GShard
from tests.planner.training.steps import COSTS, mlp, nodes_of, problem_of

NUM_EXPERTS, SEQ = 8, 128


@cache
def experts() -> Graph:
    config = GShardConfig(128, 2, 4, NUM_EXPERTS, vocabulary=512, seq=SEQ, inner_factor=4)
    tokens = torch.zeros(2, SEQ, dtype=torch.int64)
    traced = trace(GShard(config), (tokens,), train=True, targets=tokens, report=lambda _: None)
    return build_graph(traced, name="experts", is_training=True, batch=2)


def problem(unsplit: frozenset[LoopRole] = frozenset()) -> TrainingProblem:
    """One example a micro-batch, so that devices have to share something else than examples."""
    return problem_of(
        nodes_of(1, 2),
        graph=experts(),
        batch=2,
        micro_batches=(2,),
        space=SearchSpace(stage_size=StageSize.ALL, recomputes=(False,), unsplit=unsplit),
    )


@cache
def found_in(unsplit: frozenset[LoopRole] = frozenset()) -> Found:
    found = AlpaSearch(problem(unsplit), COSTS).with_micro_batches(2)
    assert found is not None
    return found


def roles_split(found: Found) -> Counter[LoopRole]:
    training = found.step.training
    return Counter(
        training.role(sharding.operator, loop)
        for stage in found.stages
        for sharding in stage.shardings
        for loop in sharding.splits
        if loop
    )


def test_tokens_examples_heads_and_experts_of_a_language_model_are_told_apart() -> None:
    training = training_graph(experts(), 2, Precision.FLOAT32)
    for operator in training.graph.operators:
        if operator.space is None:
            continue
        sizes = {training.role(operator.name, dim.name): dim.size for dim in operator.space.dims}
        assert sizes.get(LoopRole.DATA, 2) in (2, 2 * SEQ)  # examples, or all of their tokens in one loop
        assert sizes.get(LoopRole.CONTEXT, SEQ) % SEQ == 0  # the choices of each token run along it too
        assert sizes.get(LoopRole.EXPERT, NUM_EXPERTS) == NUM_EXPERTS
        if operator.kind is OperatorKind.ATTENTION:
            assert {LoopRole.DATA, LoopRole.CONTEXT, LoopRole.MODEL} == sizes.keys()
    products = [each for each in training.graph.operators if LoopRole.EXPERT in training.loop_roles[each.name].values()]
    assert len([each for each in products if not each.is_backward]) == 2  # up and down of its one layer of experts
    assert len([each for each in products if each.is_backward]) == 4


def test_a_model_without_sequences_has_neither_tokens_nor_experts() -> None:
    training = training_graph(mlp(), 8, Precision.FLOAT32)
    assert {role for roles in training.loop_roles.values() for role in roles.values()} == {LoopRole.DATA}


@pytest.mark.parametrize("role", [LoopRole.CONTEXT, LoopRole.EXPERT])
def test_what_may_not_be_split_is_whole_and_the_plan_no_faster(role: LoopRole) -> None:
    whole = found_in(frozenset({role}))
    assert not roles_split(whole)[role]
    best = best_with_fewer_splits(problem(), COSTS, found_in(), should_stop=lambda: False)
    assert whole.iteration_s >= best.iteration_s * (1 - 1e-9)


def test_one_example_is_shared_by_its_tokens_and_by_experts_and_the_plan_says_so() -> None:
    split = roles_split(found_in())
    assert split[LoopRole.CONTEXT]
    assert split[LoopRole.EXPERT]
    named = {part for stage in shape_of(found_in()).stages for axis in stage.axes for part in axis.split("+")}
    assert LoopRole.EXPERT in named


def test_both_are_among_what_the_plan_is_compared_with() -> None:
    told = alternatives(problem(), COSTS, found_in(), micro_batches=(2,), should_stop=lambda: False)
    times = {each.name: each.iteration_s for each in told}
    assert set(times) == set(BASELINES)
    for role in (LoopRole.CONTEXT, LoopRole.EXPERT):
        name = f"no-{role}-parallel"
        best = AlpaSearch(narrowed(problem(), BASELINES[name]), COSTS).with_micro_batches(2)
        assert best is not None
        assert times[name] == pytest.approx(best.iteration_s)


def test_where_examples_tokens_and_experts_are_whole_all_else_may_be_split() -> None:
    rest = replace(problem(frozenset(set(LoopRole) - {LoopRole.MODEL})))
    found = AlpaSearch(rest, COSTS).with_micro_batches(2)
    assert found is not None
    assert set(roles_split(found)) == {LoopRole.MODEL}
