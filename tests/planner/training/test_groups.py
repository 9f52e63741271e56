"""Plans over nodes of different devices: the best of all layouts, each stage priced by its own devices."""

import base64
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations, product

import pytest

from headway.core.catalogue import built_in_catalogue
from headway.core.cluster import Fabric
from headway.core.codec import to_document
from headway.core.cost.catalogued import CatalogueCosts
from headway.core.errors import InvalidArgumentError
from headway.core.graph_file import graph_bytes
from headway.core.plan.document import plan_from_document
from headway.core.plan.training import TrainingPlan
from headway.core.training_cluster import TrainingCluster
from headway.core.training_layout import LayoutStage, TrainingLayout
from headway.core.training_layout_file import read_training_layout
from headway.core.training_search import GRAPH, TrainingSearch
from headway.planner.certify.training.certificate import find_training_violations
from headway.planner.jobs.training import run
from headway.planner.training.alpa import AlpaSearch
from headway.planner.training.fixed import lay_out
from headway.planner.training.plan import fill_training_layout
from headway.planner.training.problem import TrainingProblem
from tests.planner.training.steps import NUM_BLOCKS, V100, mlp, nodes_of, problem_of

A100 = CatalogueCosts(built_in_catalogue().devices["A100-80"])
SLOW = nodes_of(1, 2)
FAST = replace(nodes_of(1, 1, memory_bytes=70 * 10**9), device="A100-80")
COSTS = (V100, A100)
SHAPES = {1: [(1, 1)], 2: [(1, 2), (2, 1)]}
NUMBER = 4


def problem_with(network: Fabric | None = None) -> TrainingProblem:
    groups = tuple(replace(nodes, network=network or nodes.network) for nodes in (SLOW, FAST))
    return replace(problem_of(), cluster=TrainingCluster(groups=groups), micro_batches=(NUMBER,))


PROBLEM = problem_with(Fabric(latency_s=1e-5, bytes_per_s=50e9))


def stage(first: int, last: int, group: int, mesh: tuple[int, int]) -> LayoutStage:
    every = (0, 1, 2, 3)
    return LayoutStage(
        layers=(first, last), mesh=mesh, axes=("any", "any"), zero_stages=every, group=group, splits=(), place="stage"
    )


def all_layouts() -> Iterator[TrainingLayout]:
    """Every cut of the layers, on every order of the groups' devices, each used as a whole or not at all."""
    for num_stages in range(1, NUM_BLOCKS + 1):
        for cuts in combinations(range(1, NUM_BLOCKS), num_stages - 1):
            runs = list(zip((0, *cuts), (*cuts, NUM_BLOCKS), strict=True))
            for places in product(((0, 1), (0, 2), (1, 1)), repeat=num_stages):
                used = [sum(size for group, size in places if group == each) for each in (0, 1)]
                if used[0] not in (0, 2) or used[1] not in (0, 1):
                    continue
                for shapes in product(*(SHAPES[size] for _, size in places)):
                    stages = tuple(
                        stage(first, end - 1, group, shape)
                        for (first, end), (group, _), shape in zip(runs, places, shapes, strict=True)
                    )
                    yield TrainingLayout(num_micro_batches=NUMBER, stages=stages, place="layout")


@cache
def planned(method: str = "auto", *, explains: bool = False) -> TrainingPlan:
    search = TrainingSearch(
        model="mlp",
        batch=PROBLEM.batch,
        cluster=PROBLEM.cluster,
        devices=tuple(built_in_catalogue().devices[nodes.device] for nodes in PROBLEM.cluster.groups),
        precision="float32",
        micro_batches=(NUMBER,),
        method=method,
        explains=explains,
        files={GRAPH: base64.b64encode(graph_bytes(mlp())).decode()},
    )
    found = run(to_document(search), report=lambda _: None, should_stop=lambda: False, resume=None)
    return plan_from_document(TrainingPlan, found)


def violations(plan: TrainingPlan) -> list[str]:
    return find_training_violations(
        plan, AlpaSearch(PROBLEM, COSTS).tables(NUMBER).step.training.graph, PROBLEM.cluster, graph_hash=plan.graph_hash
    )


@pytest.mark.parametrize("bytes_per_s", [50e9, 1e9])
def test_the_search_finds_the_best_of_all_layouts(bytes_per_s: float) -> None:
    problem = problem_with(Fabric(latency_s=1e-5, bytes_per_s=bytes_per_s))
    layouts = list(all_layouts())
    best = min(lay_out(problem, COSTS, layout).iteration_s for layout in layouts)
    found = AlpaSearch(problem, COSTS).with_micro_batches(NUMBER)
    assert len(layouts) > 25
    assert found is not None
    assert found.iteration_s == pytest.approx(best, rel=1e-9)


def test_faster_devices_have_more_of_the_layers() -> None:
    plan = planned()
    layers = {stage.group: len(stage.layers) / stage.mesh.num_devices for stage in plan.stages}
    assert layers[1] > layers[0]
    assert violations(plan) == []


def test_a_group_behind_a_slow_network_is_left_out() -> None:
    found = AlpaSearch(problem_with(Fabric(latency_s=1e-2, bytes_per_s=1e6)), COSTS).with_micro_batches(NUMBER)
    assert found is not None
    assert len({stage.group for stage in found.stages}) == 1


def test_a_handover_that_networks_cannot_do_and_a_stage_in_the_wrong_group_are_told() -> None:
    plan = planned()
    crossing = next(n for n in range(len(plan.stages) - 1) if plan.stages[n].group != plan.stages[n + 1].group)
    hasty = [replace(s, handover_s=1e-6) if n == crossing else s for n, s in enumerate(plan.stages)]
    [told] = violations(replace(plan, stages=tuple(hasty), schedule=None))
    assert told.startswith(f"Stage {crossing} hands ")
    assert "over to another group" in told
    elsewhere = [replace(s, group=1 - s.group) if n == crossing else s for n, s in enumerate(plan.stages)]
    assert any("are not all in node group" in each for each in violations(replace(plan, stages=tuple(elsewhere))))


def test_an_explanation_prices_the_baselines_that_groups_allow() -> None:
    plan = planned("alpa", explains=True)
    times = {each.name: each.iteration_s for each in plan.alternatives}
    assert times["data-parallel"] is None  # no stage has devices of two groups
    assert times["inter-only"] is not None
    assert times["inter-only"] >= plan.iteration_s * (1 - 1e-9)
    assert {each.what for each in plan.sensitivities} == {"memory", "batch", "node link", "network"}
    assert all(math.isfinite(each.iteration_s) for each in plan.sensitivities if each.iteration_s is not None)


def test_a_layout_names_groups_that_there_are() -> None:
    text = "micro_batches: 4\nstages:\n- {{layers: 0-1, mesh: 1x2}}\n- {{layers: 2-3, mesh: 1x1, group: {}}}\n"
    layout = read_training_layout(text.format(1), file="mine.yaml")
    plan = fill_training_layout(PROBLEM, COSTS, layout, nonce="test")
    assert [(stage.group, stage.first_device) for stage in plan.stages] == [(0, 0), (1, 2)]
    assert violations(plan) == []
    with pytest.raises(InvalidArgumentError, match="there is no group 2") as caught:
        lay_out(PROBLEM, COSTS, read_training_layout(text.format(2), file="mine.yaml"))
    assert "0 to 1" in caught.value.hint
    with pytest.raises(InvalidArgumentError, match="3 devices, and 1x2xV100-16 2"):
        lay_out(PROBLEM, COSTS, read_training_layout(text.format(0), file="mine.yaml"))
