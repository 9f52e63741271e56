"""Plans whose micro-batches pass through the pipeline in slices of their tokens."""

from dataclasses import replace
from functools import cache
from itertools import combinations, product

import pytest
import torch

from headway.core.batching import at_batch
from headway.core.errors import FailedPreconditionError
from headway.core.exports.parallelism import read_parallelism
from headway.core.graph import Graph
from headway.core.plan.training import SliceSeconds, TrainingPlan
from headway.core.precision import cast_graph
from headway.core.token_slices import TokenSlices
from headway.core.training_cluster import TrainingCluster
from headway.core.training_placement import training_placement
from headway.planner.certify.training.certificate import find_training_violations
from headway.planner.terapipe.slicing import slice_batch
from headway.planner.training.alpa import AlpaSearch
from headway.planner.training.best_cut import BestCut
from headway.planner.training.plan import make_training_plan
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.sensitivity import sensitivities
from headway.planner.training.slice_pricing import SlicePricing, joint_times
from headway.planner.training.slice_search import SliceSearch
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.trace import trace
from headway.profiler.zoo.families.gpt import GptConfig
from headway.profiler.zoo.networks.gpt import Gpt
from tests.planner.training.steps import COSTS, nodes_of
from tests.planner.training.steps import problem_of as mlp_problem

SEQ = 512


@cache
def gpt() -> Graph:
    config = GptConfig(num_layers=4, hidden=512, num_heads=8, vocabulary=256, seq=SEQ)
    tokens = torch.zeros(2, SEQ, dtype=torch.int64)
    traced = trace(Gpt(config), (tokens,), train=True, targets=tokens, report=lambda _: None)
    return build_graph(traced, name="gpt", is_training=True, batch=2)


def problem_of(**changes: object) -> TrainingProblem:
    """On slow links, so that a pipeline is best; with few examples, so that whole ones do not fill it."""
    nodes = nodes_of()
    nodes = replace(nodes, link=replace(nodes.link, bytes_per_s=1e9))
    problem = TrainingProblem(
        model="gpt", graph=gpt(), cluster=TrainingCluster(groups=(nodes,)), batch=8, micro_batches=(2, 4)
    )
    return replace(problem, **changes)  # type: ignore[arg-type]


@cache
def plan_of(method: str) -> TrainingPlan:
    return make_training_plan(
        problem_of(),
        COSTS,
        method=method,
        nonce="0",
        report=lambda _: None,
        should_stop=lambda: False,
        to_document=lambda _: {},
    )


def faults_of(plan: TrainingPlan) -> list[str]:
    problem = problem_of()
    step = cast_graph(at_batch(problem.graph, plan.micro_batch), problem.precision)
    return find_training_violations(plan, step, problem.cluster, graph_hash=problem.graph.content_hash)


def test_a_sliced_plan_is_certified_and_faster_than_whole_micro_batches() -> None:
    plan = plan_of("terapipe")
    assert faults_of(plan) == []
    assert sum(plan.slices) == SEQ
    assert len(plan.slices) > 1
    assert all(len(stage.slices) == len(plan.slices) for stage in plan.stages)
    assert plan.iteration_s < plan_of("alpa").iteration_s
    assert any("slices of" in reason for reason in plan.reasons)


def test_auto_takes_the_best_of_all_methods() -> None:
    plan = plan_of("auto")
    assert plan.iteration_s == pytest.approx(min(plan_of(each).iteration_s for each in ("alpa", "terapipe")))
    assert [each.name for each in plan.alternatives] == ["alpa", "graphpipe", "terapipe"]


def test_slices_that_cannot_win_are_told_by_what_they_would_take_at_least() -> None:
    """A full pipeline has nothing to fill: with 1,024 micro-batches slices that cost nothing save too little."""
    problem = problem_of(batch=1024, micro_batches=(1024,))
    plan = make_training_plan(
        problem,
        COSTS,
        nonce="0",
        report=lambda _: None,
        should_stop=lambda: False,
        to_document=lambda _: {},
    )
    told = {each.name: each for each in plan.alternatives}
    chain_s, least_s = told["alpa"].iteration_s, told["terapipe"].least_s
    assert chain_s is not None
    assert least_s is not None
    assert told["terapipe"].iteration_s is None
    assert 0.95 * chain_s < least_s <= chain_s
    assert told["graphpipe"].iteration_s == pytest.approx(chain_s)


def test_auto_says_why_other_models_are_not_sliced() -> None:
    plan = make_training_plan(
        mlp_problem(),
        COSTS,
        nonce="0",
        report=lambda _: None,
        should_stop=lambda: False,
        to_document=lambda _: {},
    )
    [terapipe] = [each for each in plan.alternatives if each.name == "terapipe"]
    assert "no attention" in terapipe.why_not[0]
    assert terapipe.iteration_s is None


def test_terapipe_refuses_models_that_are_no_causal_language_models() -> None:
    with pytest.raises(FailedPreconditionError, match="cannot be cut along its tokens"):
        SliceSearch(mlp_problem(), COSTS)


def test_a_slice_of_the_whole_sequence_takes_what_the_stage_takes() -> None:
    problem = problem_of()
    alpa = AlpaSearch(problem, COSTS)
    tables = alpa.tables(4)
    found = alpa.cut(tables)
    assert found is not None
    pricing = SlicePricing(slices=TokenSlices(problem.graph), maker=tables.maker)
    for stage, layout in zip(found.stages, found.layouts, strict=True):
        [whole] = pricing.times(layout).of([SEQ])
        assert whole.forward_s == pytest.approx(stage.forward_s, rel=1e-9)
        assert whole.backward_s == pytest.approx(stage.backward_s, rel=1e-9)
        assert whole.handover_s == pytest.approx(stage.handover_s, rel=1e-9)
        halves = pricing.times(layout).of([SEQ // 2, SEQ // 2])
        assert halves[0].forward_s < halves[1].forward_s
        assert whole.forward_s < sum(each.forward_s for each in halves) < 2 * whole.forward_s


def test_slices_are_the_best_of_all() -> None:
    """Brute force over all ways to cut a sequence into steps of 64 tokens."""
    problem = problem_of()
    alpa = AlpaSearch(problem, COSTS)
    tables = alpa.tables(2)
    found = alpa.cut(tables, num_slices=4)
    assert found is not None
    pricing = SlicePricing(slices=TokenSlices(problem.graph), maker=tables.maker)
    times = [pricing.times(layout) for layout in found.layouts]
    joint, every = joint_times(times), 64 // times[0].step
    sliced = slice_batch(replace(joint, seconds=joint.seconds[:, every - 1 :: every, ::every], step=64), 2)
    assert sliced is not None
    best_s = float("inf")
    for number in range(SEQ // 64):
        for cuts in combinations(range(64, SEQ, 64), number):
            tokens = [b - a for a, b in zip((0, *cuts), (*cuts, SEQ), strict=True)]
            on_stages = [[each.latency_s for each in stage.of(tokens)] for stage in times]
            seconds = [max(part) for part in zip(*on_stages, strict=True)]
            best_s = min(best_s, 2 * sum(seconds) + (len(times) - 1) * max(seconds))
    assert sliced.iteration_s == pytest.approx(best_s, rel=1e-9)


def test_slices_say_what_would_change_the_choice() -> None:
    """By the same search with other links, memory or batch."""
    problem = problem_of()
    search = SliceSearch(problem, COSTS)
    found = search.run(report=lambda _: None, should_stop=lambda: False)
    assert found is search.sliced is not None
    best = BestCut(problem=problem, costs=COSTS, found=found)
    tables = best.tables(found.num_micro_batches)
    same = best.cut(tables)
    assert same is not None
    assert same.iteration_s == pytest.approx(found.iteration_s)
    told = {(each.what, each.factor): each for each in sensitivities(best, tables=[tables], should_stop=lambda: False)}
    assert set(told) == set(product(("memory", "batch", "node link", "network"), (0.5, 2.0)))
    faster = told["node link", 2.0]
    assert faster.iteration_s is not None
    assert faster.iteration_s <= found.iteration_s
    assert "slices" in told["network", 2.0].layout


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"slices": (SEQ,)}, "micro-batches have 1"),
        ({"slices": ()}, "the plan has none"),
        ({"slices": (0, SEQ)}, "sequences have"),
        ({"iteration_s": 1e-6}, "equation 2.5"),
    ],
)
def test_the_certifier_finds_faults_of_slices(change: dict[str, object], fault: str) -> None:
    plan = plan_of("terapipe")
    assert any(fault in each for each in faults_of(replace(plan, **change)))  # type: ignore[arg-type]


def test_the_certifier_adds_up_the_slices_of_a_stage() -> None:
    plan = plan_of("terapipe")
    first = plan.stages[0]
    for slices, fault in (
        ((SliceSeconds(forward_s=1.0, backward_s=1.0), *first.slices[1:]), "sum up to"),
        ((SliceSeconds(forward_s=-1.0, backward_s=1.0), *first.slices[1:]), "forward_s is -1.0"),
    ):
        broken = replace(plan, stages=(replace(first, slices=slices), *plan.stages[1:]))
        assert any(fault in each for each in faults_of(broken))
    few = replace(plan, stages=(replace(first, in_flight=0), *plan.stages[1:]))
    assert any("1F1B needs" in each for each in faults_of(few))


def test_tools_that_know_no_slices_are_not_given_any() -> None:
    plan = plan_of("terapipe")
    with pytest.raises(FailedPreconditionError, match="slices of their tokens"):
        read_parallelism(plan, gpt(), "torchtitan")
    with pytest.raises(FailedPreconditionError, match="slices of tokens"):
        training_placement(plan)
