"""What a search space leaves open, and what it does not: axes, ZeRO, meshes, stages and recomputing."""

from dataclasses import replace

import pytest

from headway.core.errors import InvalidArgumentError
from headway.core.graph import OperatorKind
from headway.core.training_cluster import TrainingCluster
from headway.planner.intra.loop_roles import LoopRole, Roles
from headway.planner.intra.options import AxisRole
from headway.planner.training.alpa import AlpaSearch, Found
from headway.planner.training.space import SearchSpace, StageSize
from tests.planner.training.steps import COSTS, nodes_of, problem_of

ANY, DATA, MODEL = AxisRole.ANY, AxisRole.DATA, AxisRole.MODEL


def found_in(space: SearchSpace, **changes: object) -> Found | None:
    problem = problem_of(space=space, **changes)
    return AlpaSearch(problem, COSTS).with_micro_batches(4)


def examples_of(roles: Roles) -> set[str]:
    return {loop for loop, role in roles.items() if role is LoopRole.DATA}


def split_loops(found: Found, axis: int) -> set[tuple[bool, bool]]:
    """Of the products, whether their loop along an axis runs along examples, and whether they are backward ones."""
    training = found.step.training
    operators = {operator.name: operator for operator in training.graph.operators}
    roles = training.loop_roles
    return {
        (sharding.splits[axis] in examples_of(roles[sharding.operator]), operators[sharding.operator].is_backward)
        for stage in found.stages
        for sharding in stage.shardings
        if operators[sharding.operator].kind is OperatorKind.MATMUL
    }


def test_an_axis_for_data_splits_examples_and_one_for_the_model_anything_else() -> None:
    space = SearchSpace(axis_roles=(DATA, MODEL), mesh_shapes=((2, 2),), stage_size=StageSize.ALL)
    found = found_in(space)
    assert found is not None
    assert split_loops(found, axis=0) == {(True, False), (True, True)}
    assert split_loops(found, axis=1) == {(False, False), (False, True)}
    for stage in found.stages:
        assert all(sharding.splits[1] for sharding in stage.shardings if "mm" in sharding.operator)


def test_without_roles_the_same_mesh_splits_examples_along_both_axes() -> None:
    found = found_in(SearchSpace(mesh_shapes=((2, 2),), stage_size=StageSize.ALL))
    assert found is not None
    assert split_loops(found, axis=0) == split_loops(found, axis=1) == {(True, False), (True, True)}


@pytest.mark.parametrize("level", range(4))
def test_parameters_have_the_zero_stage_that_is_allowed(level: int) -> None:
    space = SearchSpace(axis_roles=(DATA, DATA), zero_stages=(level,), mesh_shapes=((4, 1),))
    found = found_in(space)
    assert found is not None
    assert {each.zero_stage for stage in found.stages for each in stage.parameters} == {level}


def test_of_several_zero_stages_the_one_is_taken_that_memory_allows() -> None:
    whole = found_in(SearchSpace(axis_roles=(DATA, DATA), mesh_shapes=((4, 1),)))
    assert whole is not None
    needed = max(stage.memory.total_bytes for stage in whole.stages)
    tight = found_in(
        SearchSpace(axis_roles=(DATA, DATA), mesh_shapes=((4, 1),), recomputes=(False,)),
        nodes=nodes_of(memory_bytes=int(0.7 * needed)),
    )
    assert tight is not None
    assert {each.zero_stage for stage in tight.stages for each in stage.parameters} != {0}
    assert tight.iteration_s > whole.iteration_s


@pytest.mark.parametrize("recomputes", [False, True])
def test_stages_recompute_only_where_they_may(recomputes: bool) -> None:
    found = found_in(SearchSpace(recomputes=(recomputes,)))
    assert found is not None
    assert {stage.recomputes for stage in found.stages} == {recomputes}


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_there_are_exactly_so_many_stages(number: int) -> None:
    found = found_in(SearchSpace(num_stages=number))
    assert found is not None
    assert len(found.stages) == number
    assert sum(stage.mesh.num_devices for stage in found.stages) == 4


def test_more_stages_than_layers_are_not_possible() -> None:
    assert found_in(SearchSpace(num_stages=5)) is None


def test_stages_have_the_sizes_and_shapes_that_are_allowed() -> None:
    one = found_in(SearchSpace(stage_size=StageSize.ONE))
    whole = found_in(SearchSpace(stage_size=StageSize.ALL, mesh_shapes=((1, 4),)))
    assert one is not None
    assert whole is not None
    assert [stage.mesh.shape for stage in one.stages] == [(1, 1)] * 4
    assert [stage.mesh.shape for stage in whole.stages] == [(1, 4)]


def test_parameters_are_sharded_along_their_largest_dim_where_a_rule_says_so() -> None:
    found = found_in(SearchSpace(by_largest_dim=True, mesh_shapes=((1, 4),), stage_size=StageSize.ALL))
    assert found is not None
    tensors = found.step.training.tensors
    for each in found.stages[0].parameters:
        shape, shard = tensors[each.parameter].shape, each.spec.axes[1]
        if len(shape) > 1:
            assert shard is not None
            assert shape[shard.dim] == max(shape)


def test_a_smaller_space_is_never_better_and_asked_of_the_same_tables() -> None:
    problem = problem_of(nodes_of(2, 2))
    search = AlpaSearch(problem, COSTS)
    tables = search.tables(4)
    best = search.cut(tables)
    assert best is not None
    for number in range(1, 5):
        part = search.cut(tables, space=SearchSpace(num_stages=number))
        narrow = replace(problem, space=SearchSpace(num_stages=number))
        alone = AlpaSearch(narrow, COSTS).with_micro_batches(4)
        assert part is not None
        assert alone is not None
        assert part.iteration_s == pytest.approx(alone.iteration_s)
        assert part.iteration_s >= best.iteration_s * (1 - 1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recomputes": ()}, "recomputes is empty"),
        ({"zero_stages": (4,)}, r"zero_stages is \[4\]"),
        ({"zero_stages": ()}, r"zero_stages is \[\]"),
        ({"num_stages": 0}, "num_stages is 0"),
    ],
)
def test_says_what_is_wrong_with_a_space(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        SearchSpace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("memory_bytes", range(40 * 10**6, 140 * 10**6, 10 * 10**6))
def test_what_fits_with_zero_for_all_parameters_is_found_without_it_too(memory_bytes: int) -> None:
    """Where memory binds, prices of it have gaps; a baseline is never the better one for that."""
    nodes = nodes_of(memory_bytes=memory_bytes)
    free = found_in(SearchSpace(stage_size=StageSize.ALL), cluster=TrainingCluster(groups=(nodes,)))
    for level in (2, 3):
        space = SearchSpace(
            axis_roles=(DATA, DATA), mesh_shapes=((1, 4),), zero_stages=(level,), stage_size=StageSize.ALL
        )
        sharded = found_in(space, cluster=TrainingCluster(groups=(nodes,)))
        if sharded is not None:
            assert free is not None
            assert free.iteration_s <= sharded.iteration_s * (1 + 1e-9)
