"""Plans of the user's: priced as they are given, filled in where they leave something open, and told what is wrong."""

from dataclasses import replace

import pytest

from headway.core.batching import at_batch
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.plan.training import TrainingPlan
from headway.core.training_cluster import TrainingCluster
from headway.core.training_layout_file import read_training_layout
from headway.planner.certify.training.certificate import find_training_violations
from headway.planner.training.alpa import AlpaSearch
from headway.planner.training.plan import fill_training_layout
from headway.planner.training.problem import TrainingProblem
from tests.planner.training.steps import COSTS, nodes_of, problem_of

NODES = nodes_of(2, 2)
PROBLEM = problem_of(NODES)
LAYOUT = """\
micro_batches: 4
stages:
- layers: 0-1
  mesh: 2x1
  axes: [data, any]
  zero: 1
  recompute: true
- modules: [blocks.2, blocks.3]
  mesh: 1x2
  axes: [data, model]
"""


def filled(text: str = LAYOUT, problem: TrainingProblem = PROBLEM) -> TrainingPlan:
    return fill_training_layout(problem, COSTS, read_training_layout(text, file="layout.yaml"), nonce="test")


def test_a_plan_is_as_it_was_given_and_certified() -> None:
    plan = filled()
    first, second = plan.stages
    assert plan.method == "fixed"
    assert [stage.mesh.shape for stage in plan.stages] == [(2, 1), (1, 2)]
    assert [first.recomputes, second.recomputes] == [True, False]
    assert {each.zero_stage for each in first.parameters} == {1}
    assert any(not each.spec.is_replicated for each in second.parameters)
    step = at_batch(PROBLEM.graph, plan.micro_batch)
    assert not find_training_violations(plan, step, PROBLEM.cluster, graph_hash=PROBLEM.graph.content_hash)


def test_what_a_search_found_costs_the_same_when_it_is_given() -> None:
    found = AlpaSearch(PROBLEM, COSTS).with_micro_batches(4)
    assert found is not None
    lines = ["micro_batches: 4", "stages:"]
    for choice, stage in zip(found.cut.stages, found.stages, strict=True):
        lines.append(f"- {{layers: {choice.first}-{choice.last}, mesh: {stage.mesh}}}")
    assert filled("\n".join(lines)).iteration_s == pytest.approx(found.iteration_s)


def test_splits_of_operators_are_kept() -> None:
    product = next(operator.name for operator in PROBLEM.graph.operators if "mm" in operator.name)
    text = LAYOUT.replace("  recompute: true\n", f"  recompute: true\n  splits: {{{product}: [n, '']}}\n")
    given, free = filled(text).stages[0], filled().stages[0]
    splits = {each.operator: each.splits for each in given.shardings}
    assert splits[product] == ("n", "")
    assert splits != {each.operator: each.splits for each in free.shardings}
    assert given.latency_s > free.latency_s


def test_a_stage_that_does_not_fit_is_told_with_its_bytes() -> None:
    problem = replace(PROBLEM, cluster=TrainingCluster(groups=(replace(NODES, memory_bytes=40 * 10**6),)))
    with pytest.raises(
        FailedPreconditionError, match=r"line 3: stages\[0\] does not fit: each device lacks (\d+) bytes"
    ):
        filled(problem=problem)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("micro_batches: 4", "micro_batches: 0", r"line 1: micro_batches should be a whole number from 1"),
        ("micro_batches: 4", "micro_batch: 4", r"line 1: micro_batch is unknown"),
        ("micro_batches: 4\n", "", r"lacks 'micro_batches'"),
        ("micro_batches: 4", "micro_batches: 3", r"does not divide into 3 micro-batches"),
        ("layers: 0-1", "layers: 1-0", r"line 3: stages\[0\].layers should be a run of layers"),
        ("layers: 0-1", "layers: 0-2", r"line 8: stages\[1\] begins with layer 2 instead of 3"),
        ("blocks.2, blocks.3", "blocks.2, blocks.2", r"line 8: stages\[1\] ends with layer 2"),
        (
            "blocks.2, blocks.3",
            "blocks.2, blocks.9",
            r"line 8: stages\[1\].modules: the model has no module 'blocks.9'",
        ),
        ("[blocks.2, blocks.3]", "[blocks.2]", r"line 8: stages\[1\].modules should be the first and the last"),
        ("mesh: 2x1", "mesh: 2", r"line 4: stages\[0\].mesh should be devices along two axes"),
        ("mesh: 2x1", "mesh: 4x1", r"line 3: stages: the stages have 6 devices, and the cluster 4"),
        ("mesh: 2x1", "mesh: 3x1", r"line 3: stages\[0\].mesh: 3x1 does not lie on nodes of 2"),
        ("axes: [data, any]", "axes: [date, any]", r"line 5: stages\[0\].axes\[0\] should be any, data or model"),
        ("zero: 1", "zero: 4", r"line 6: stages\[0\].zero should be a whole number from 0 to 3"),
        ("recompute: true", "recompute: maybe", r"line 7: stages\[0\].recompute should be true or false"),
        ("recompute: true", "splits: {nothing: [n, '']}", r"line 7: stages\[0\].splits.nothing: the stage has no such"),
        (
            "recompute: true",
            "splits: {PRODUCT: [z, '']}",
            r"line 7: stages\[0\].splits.\S+: 'z' cannot be split over 2",
        ),
        ("- layers: 0-1\n  mesh", "- mesh", r"line 3: stages\[0\] should have a mesh, and either layers or modules"),
    ],
)
def test_an_error_names_the_line_and_the_field(old: str, new: str, message: str) -> None:
    product = next(operator.name for operator in PROBLEM.graph.operators if "mm" in operator.name)
    assert old in LAYOUT
    with pytest.raises(InvalidArgumentError, match=message):
        filled(LAYOUT.replace(old, new.replace("PRODUCT", product)))
