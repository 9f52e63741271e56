"""Groups that span machines: how they pack, against trying all there is, and what handing over between them takes."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from headway.cli.placement.view import alternative_view, placement_view
from headway.core.device_kind import DeviceKind
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.node_span import NodeLink, over_nodes, span
from headway.core.placement import GroupShape, PlacedGroup, PlacedModel, Placement
from headway.core.placement_problem import PlacementProblem, WorkloadSource
from headway.core.plan.placement import PlacementPlan
from headway.core.stage_profile import StageBatch
from headway.planner.certify.placement import find_placement_violations
from headway.planner.placement.planning.plan import make_placement_plan, try_instead
from headway.planner.placement.search.partition import uniform
from headway.planner.placement.search.problem import Problem, make_problem
from headway.planner.placement.simulator import Rules, simulate
from headway.planner.placement.workload import Workload

GIB = 1024**3
LINK = NodeLink(name="slow line", latency_s=0.001, bytes_per_s=GIB)
ONE = Workload(models=("a",), arrival_s=np.zeros(1), model=np.zeros(1, np.int32), slo_s=np.array([np.inf]))
SHAPES = st.sampled_from([(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (1, 2), (2, 2), (3, 2), (4, 2), (1, 3), (2, 3)])


def by_stages(pp: int, op: int, nodes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All ways to lay a pipeline's stages, in their order, on machines: devices that it takes of each. One that fits
    the largest machine is on one; else each machine but the last takes all the stages that the largest would."""
    largest = max(nodes)
    for places in product(range(len(nodes)), repeat=pp):
        runs = [stage for stage in range(pp) if stage == 0 or places[stage] != places[stage - 1]]
        wanted = [0] if pp * op <= largest else [stage for stage in range(pp) if stage % (largest // op) == 0]
        if runs == wanted and len({places[stage] for stage in runs}) == len(runs):
            yield tuple(places.count(node) * op for node in range(len(nodes)))


def can_pack(shapes: list[tuple[int, int]], nodes: tuple[int, ...]) -> bool:
    reached = {nodes}
    for pp, op in shapes:
        ways = list(by_stages(pp, op, nodes)) if op <= max(nodes) else []
        after = (tuple(np.subtract(left, way)) for left in reached for way in ways)
        reached = {left for left in after if min(left) >= 0}
    return bool(reached)


def problem_of(shapes: list[tuple[int, int]], nodes: tuple[int, ...], make_profile: Any) -> Problem:
    profiles = tuple(make_profile("small", *[0.1] * pp, op=op) for pp, op in set(shapes))
    kind = DeviceKind(nodes=nodes, memory_bytes=4 * GIB, is_joined=True)
    return make_problem([PlacedModel(name="a", profiles=profiles)], ONE, Rules(), [kind])


@settings(max_examples=150, deadline=None)
@given(
    shapes=st.lists(SHAPES, min_size=1, max_size=4),
    node=st.integers(1, 4),
    more=st.lists(st.integers(1, 4), max_size=2),
)
def test_groups_pack_as_trying_everything_says(
    plan: PlacementPlan, make_profile: Any, shapes: list[tuple[int, int]], node: int, more: list[int]
) -> None:
    nodes = (node, *more)
    can = can_pack(shapes, nodes)
    groups = tuple(PlacedGroup(shape=GroupShape(pp=pp, op=op), models=()) for pp, op in shapes)
    cluster = replace(plan.problem.cluster, num_devices=sum(nodes), devices_per_node=max(nodes), nodes=nodes)
    problem = replace(plan.problem, cluster=cluster)
    told = find_placement_violations(replace(plan, problem=problem, placement=Placement(groups=groups)))
    assert any(word in each for each in told for word in ("span", "groups take")) != can
    searched = problem_of(shapes, nodes, make_profile)
    if not {GroupShape(pp=pp, op=op) for pp, op in shapes} <= set(searched.shapes):
        assert not can
        return
    packs = searched.packs([searched.shapes.index(group.shape) for group in groups])
    sizes = sorted(size for pp, op in shapes for size in span(pp, op, node=max(nodes)))
    divides = all(large % small == 0 for small, large in pairwise(sizes))
    assert packs == can if divides else packs <= can


@pytest.mark.parametrize(
    ("shape", "nodes", "count"),
    [
        ((4, 1), (2, 2, 2, 2), 2),
        ((3, 2), (4, 4, 4), 2),
        ((2, 3), (4, 4), 1),
        ((5, 1), (4, 4, 3), 2),
        ((2, 1), (3, 3), 2),
    ],
)
def test_a_shape_is_repeated_while_the_nodes_have_room(
    make_profile: Any, shape: tuple[int, int], nodes: tuple[int, ...], count: int
) -> None:
    searched = problem_of([shape], nodes, make_profile)
    assert len(uniform(searched, 0)) == count
    assert can_pack([shape] * count, nodes)
    assert not can_pack([shape] * (count + 1), nodes)


@settings(max_examples=60, deadline=None)
@given(
    pp=st.integers(1, 6),
    op=st.integers(1, 3),
    node=st.integers(1, 6),
    num_bytes=st.lists(st.integers(0, GIB), min_size=6),
    is_known=st.booleans(),
)
def test_each_boundary_that_crosses_takes_what_its_stage_may_hand_over(
    make_profile: Any, pp: int, op: int, node: int, num_bytes: list[int], is_known: bool
) -> None:
    held, alone = tuple(num_bytes[:pp]), (0.1,) * pp
    batch = StageBatch(batch_size=1, stage_latency_s=alone, activation_bytes=held)
    if is_known:
        batch = replace(batch, activation_bytes=(GIB,) * pp, handover_bytes=held[:-1])
    laid = over_nodes(replace(make_profile("small", *alone, op=op), batches=(batch,)), LINK, node=node)
    expected = list(alone)
    used = 0
    for stage in range(pp):
        if pp * op > node >= op and used + op > node:
            expected[stage - 1] += 0.001 + held[stage - 1] / GIB
            used = 0
        used += op
    assert laid.batches[0].stage_latency_s == pytest.approx(expected, rel=1e-12)
    assert laid.weight_bytes == (laid.weight_bytes[0],) * pp


@pytest.fixture(scope="module")
def problem(make_problem: Any, make_profile: Any) -> PlacementProblem:
    """Two machines of two: 'a' needs all four devices for its weights."""
    made: PlacementProblem = make_problem(
        WorkloadSource(spec="poisson:rate=2", duration_s=100.0),
        names=("a",),
        profiles=(
            make_profile("big", 0.2, weight_gib=12.0),
            make_profile("big", 0.1, 0.1, weight_gib=12.0),
            make_profile("big", 0.05, 0.05, 0.05, 0.05, weight_gib=12.0, activation_gib=0.0625),
        ),
        num_devices=4,
        memory_gib=4.0,
        slo_s=1.0,
    )
    return replace(made, cluster=replace(made.cluster, devices_per_node=2, across_nodes=LINK))


@pytest.fixture(scope="module")
def plan(problem: PlacementProblem) -> PlacementPlan:
    return make(problem)


def make(problem: PlacementProblem) -> PlacementPlan:
    return make_placement_plan(
        problem, {}, plan_id="plan-1", created_at_s=1.0, report=lambda _: None, should_stop=lambda: False
    )


def shown(view: object) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def test_a_model_too_large_for_a_machine_is_placed_across_two(problem: PlacementProblem, plan: PlacementPlan) -> None:
    assert plan.placement.shapes == "1 of 4x1"
    assert find_placement_violations(plan) == []
    one = simulate(problem.placed_models, plan.placement, ONE, Rules.SERVING)
    within = replace(problem, cluster=replace(problem.cluster, devices_per_node=4))
    quicker = simulate(within.placed_models, plan.placement, ONE, Rules.SERVING)
    assert one.mean_latency_s - quicker.mean_latency_s == pytest.approx(0.001 + 0.0625)
    assert "group 0 spans 2 nodes (2 + 2 devices); slow line adds to a pass at most: a 63.5 ms" in shown(
        placement_view(plan)
    )


def test_without_the_option_it_is_refused_or_found_out(problem: PlacementProblem, plan: PlacementPlan) -> None:
    apart = replace(problem, cluster=replace(problem.cluster, across_nodes=None))
    assert "A group of 4 devices spans nodes of 2." in find_placement_violations(replace(plan, problem=apart))
    with pytest.raises(FailedPreconditionError, match="fits no group"):
        make(apart)


def test_a_counterfactual_may_span_nodes_where_they_have_room(plan: PlacementPlan) -> None:
    tried = try_instead(plan, "groups=4x1", {})
    assert tried.placement == plan.placement
    assert "group 0 spans 2 nodes" in shown(alternative_view(plan, tried))
    six = replace(plan.problem.cluster, num_devices=6, devices_per_node=3)
    with pytest.raises(InvalidArgumentError, match="do not fit on nodes of 3 devices"):
        try_instead(replace(plan, problem=replace(plan.problem, cluster=six)), "groups=2x1,2x1,2x1", {})
