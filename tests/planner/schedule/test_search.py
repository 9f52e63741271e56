"""The searches are as good as trying everything, and their schedules hold for any number of micro-batches."""

import pytest

from headway.core.errors import FailedPreconditionError
from headway.core.pipeline_shapes import ShapeOptions, named_placement, with_lag
from headway.core.schedule import Dependency, Task, TaskKind, TaskPlacement
from headway.planner.certify.schedule import find_repetend_violations, find_schedule_violations
from headway.planner.certify.schedule_programs import find_program_violations
from headway.planner.schedule.communication import device_programs
from headway.planner.schedule.completion import complete, extend, truncated
from headway.planner.schedule.greedy import greedy_schedules
from headway.planner.schedule.kernels import Limits, search_kernel
from headway.planner.schedule.problem import make_problem
from headway.planner.schedule.repetend import Effort
from headway.planner.schedule.search import published, search_schedule
from tests.planner.schedule.oracle import random_placement, shortest_makespan, shortest_period

TABLE_2 = [("V", 4, 4, 1), ("X", 8, 3, 2), ("K", 6, 3, 2), ("M", 6, 6, 4), ("NN", 8, 6, 4)]


@pytest.mark.parametrize("seeds", [range(first, first + 25) for first in range(0, 125, 25)], ids=str)
def test_the_period_is_the_best_of_all(seeds: range) -> None:
    for seed in seeds:
        placement = random_placement(seed)
        problem = make_problem(placement)
        found = search_kernel(problem, Limits(proves=True))
        assert found.is_optimal, seed
        assert found.kernel.period * problem.tick == shortest_period(placement), seed


@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, 80, 20)], ids=str)
def test_the_makespan_is_the_best_of_all(seeds: range) -> None:
    for seed in seeds:
        placement = random_placement(seed)
        if len(placement.tasks) > 4:
            continue
        found = search_schedule(placement, 2, Limits(), method="optimal")
        assert found.schedule.makespan == shortest_makespan(placement, 2), seed
        assert found.bound == pytest.approx(found.schedule.makespan), seed
        assert find_schedule_violations(found.schedule) == []


@pytest.mark.parametrize("seed", range(30))
def test_a_repetend_gives_a_schedule_of_any_number_of_micro_batches(seed: int) -> None:
    placement = random_placement(seed)
    problem = make_problem(placement)
    kernel = search_kernel(problem, Limits()).kernel
    completion = complete(problem, kernel, effort=Effort(units=0.05))
    for count in range(1, kernel.num_micro_batches + 6):
        made = [truncated(problem, kernel, count)]
        if count >= kernel.num_micro_batches:
            made.append(extend(problem, completion, count))
        for schedule in made:
            assert find_schedule_violations(schedule) == []
            assert find_program_violations(schedule, device_programs(schedule)) == []
    longer, shorter = (extend(problem, completion, kernel.num_micro_batches + more) for more in (9, 8))
    assert longer.makespan - shorter.makespan <= kernel.period


@pytest.mark.parametrize(("shape", "period", "training", "inference"), TABLE_2)
def test_table_2_has_no_bubble(shape: str, period: int, training: int, inference: int) -> None:
    for is_training, num_micro_batches in ((True, training), (False, inference)):
        placement = named_placement(shape, 4, ShapeOptions(is_training=is_training))
        found = search_schedule(placement, 16, Limits())
        assert found.repetend is not None
        assert found.repetend.period == placement.lower_bound
        assert found.repetend.num_micro_batches == num_micro_batches
        assert found.repetend.is_optimal
        assert find_repetend_violations(placement, found.repetend) == []
        assert find_schedule_violations(found.schedule) == []
        assert not is_training or placement.lower_bound == period


@pytest.mark.parametrize(
    ("shape", "method", "bubble"), [("M", "1f1b+", 0.25), ("NN", "1f1b+", 0.2), ("X", "chimera-direct", 0.2)]
)
def test_table_2_of_published_schedules(shape: str, method: str, bubble: float) -> None:
    placement = named_placement(shape, 4, ShapeOptions())
    found = search_schedule(placement, 16, Limits(proves=True), method=method)
    assert found.repetend is not None
    assert 1 - placement.lower_bound / found.repetend.period == pytest.approx(bubble)
    assert found.repetend.is_optimal


def test_v_with_16_micro_batches_is_proven_time_optimal() -> None:
    found = search_schedule(named_placement("V", 4, ShapeOptions(backward=2)), 16, Limits(), method="optimal")
    assert found.schedule.makespan == found.bound == 57


def test_no_bubble_with_half_the_memory_of_1f1b() -> None:
    """V-Half publishes 3 stage-activations for 4 devices."""
    shape = named_placement("zigzag", 4, ShapeOptions(backward=2, splits_backward=True))
    placement = TaskPlacement(name="V", num_devices=4, tasks=shape.tasks, dependencies=shape.dependencies, memory=2)
    found = search_kernel(make_problem(placement), Limits())
    assert found.kernel.period == make_problem(placement).lower_bound


def test_times_that_are_no_whole_numbers_reach_the_bound_within_the_stated_error() -> None:
    shape = named_placement("M", 4, ShapeOptions(forward=0.01234567, backward=0.0337, shared=0.0101))
    placement = with_lag(shape, 50e-6)
    found = search_schedule(placement, 32, Limits())
    assert found.repetend is not None
    assert found.repetend.period <= placement.lower_bound * (1 + 1e-3)
    assert 0 < found.problem.rounding_error < 1e-3
    assert find_schedule_violations(found.schedule) == []


@pytest.mark.parametrize("seed", range(8))
def test_never_worse_than_what_is_published(seed: int) -> None:
    placement = random_placement(1000 + seed)
    found = search_schedule(placement, 12, Limits())
    others = published(placement, 12)
    others += [search_schedule(placement, 12, Limits(), method=name).schedule for name in ("1f1b+", "chimera-direct")]
    assert all(found.schedule.makespan <= each.makespan * (1 + 1e-9) for each in others)
    assert find_schedule_violations(found.schedule) == []


def _two(*, forward: float, backward: float, memory: float | None) -> TaskPlacement:
    return TaskPlacement(
        name="two",
        num_devices=2,
        tasks=(
            Task(name="F0", devices=(0,), time=1, memory=forward),
            Task(name="F1", devices=(1,), time=1, memory=2),
            Task(name="B0", devices=(0,), time=1, memory=backward, kind=TaskKind.BACKWARD),
            Task(name="B1", devices=(1,), time=1, memory=-2, kind=TaskKind.BACKWARD),
        ),
        dependencies=(Dependency(before=0, after=1), Dependency(before=1, after=2), Dependency(before=1, after=3)),
        memory=memory,
    )


@pytest.mark.parametrize(
    ("placement", "named"),
    [
        (_two(forward=1, backward=-1, memory=1), "F1 needs 2 on device 1"),
        (_two(forward=2, backward=-1, memory=8), "leaves 1 on device 0"),
    ],
)
def test_memory_that_admits_no_schedule_names_the_culprit(placement: TaskPlacement, named: str) -> None:
    with pytest.raises(FailedPreconditionError, match=named):
        search_schedule(placement, 16, Limits())


@pytest.mark.parametrize(
    ("method", "num_devices", "count", "makespan", "memory"),
    [("v-half", 4, 16, 101, 3), ("v-half", 8, 32, 209, 5), ("v-min", 4, 16, 107, 2), ("v-min", 5, 20, 135, 3)],
)
def test_controllable_memory_is_as_its_authors_generator_has_it(
    method: str, num_devices: int, count: int, makespan: int, memory: float
) -> None:
    """Makespans are those of the authors' generator for equal times, or less."""
    shape = named_placement("zigzag", num_devices, ShapeOptions(backward=2, splits_backward=True))
    found = search_schedule(shape, count, Limits(), method=method).schedule
    assert found.makespan <= makespan
    assert max(found.peak_memory) == memory
    assert find_schedule_violations(found) == []
    few = search_schedule(shape, 2, Limits(), method=method).schedule
    assert find_schedule_violations(few) == []


@pytest.mark.parametrize("seed", range(20))
def test_greedy_schedules_are_valid_and_get_shorter(seed: int) -> None:
    placement = random_placement(seed)
    made = list(greedy_schedules(placement, 8))
    assert all(find_schedule_violations(each) == [] for each in made)
    assert [each.makespan for each in made] == sorted((each.makespan for each in made), reverse=True)
    alone = sum(task.time for task in placement.tasks) + sum(each.lag for each in placement.dependencies)
    assert made[0].makespan == 8 * alone
    assert list(greedy_schedules(placement, 10_000)) == []
