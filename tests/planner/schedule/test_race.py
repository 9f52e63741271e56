"""The paper's search with Z3 finds what brute force and CP-SAT find, and a race of both the better of both."""

import threading

import pytest

from headway.core.errors import FailedPreconditionError
from headway.core.pipeline_shapes import ShapeOptions, named_placement
from headway.core.schedule import Repetend
from headway.core.schedule_search import Solver
from headway.planner.certify.schedule import find_repetend_violations
from headway.planner.schedule import paper
from headway.planner.schedule.kernels import Found, Limits, search_kernel
from headway.planner.schedule.paper import assignments, search_paper_kernel
from headway.planner.schedule.problem import Problem, make_problem
from headway.planner.schedule.race import race, solve_kernel
from headway.planner.schedule.repetend import Kernel
from tests.planner.schedule.oracle import random_placement, shortest_period


def repetend_of(problem: Problem, kernel: Kernel) -> Repetend:
    starts = tuple(start * problem.tick for start in kernel.starts)
    return Repetend(period=kernel.period * problem.tick, indices=kernel.indices, starts=starts)


@pytest.mark.parametrize("seeds", [range(first, first + 10) for first in range(0, 40, 10)], ids=str)
def test_z3_finds_the_best_of_all(seeds: range) -> None:
    for seed in seeds:
        placement = random_placement(seed)
        problem = make_problem(placement)
        found = search_paper_kernel(problem, Limits())
        assert found.is_optimal, seed
        assert found.kernel.period * problem.tick == shortest_period(placement), seed
        assert find_repetend_violations(placement, repetend_of(problem, found.kernel)) == [], seed


@pytest.mark.parametrize(("shape", "num_micro_batches"), [("V", 4), ("K", 3)])
def test_z3_proves_the_smallest_repetend_of_table_2(shape: str, num_micro_batches: int) -> None:
    problem = make_problem(named_placement(shape, 4, ShapeOptions()))
    found = search_paper_kernel(problem, Limits())
    assert found.is_optimal
    assert found.is_smallest
    assert found.kernel.num_micro_batches == num_micro_batches


def test_assignments_are_all_that_property_4_2_allows() -> None:
    """Of a chain of four tasks over three micro-batches those that fall: of tasks 0 to 3 from 2 to 0."""
    problem = make_problem(named_placement("V", 2, ShapeOptions()))
    found = list(assignments(problem, 3))
    assert sorted(found) == [(2, a, b, 0) for a in range(3) for b in range(a + 1)]


@pytest.mark.parametrize("seed", range(6))
def test_a_race_is_as_good_as_either(seed: int) -> None:
    problem = make_problem(random_placement(seed))
    found = solve_kernel(problem, Limits(solver=Solver.RACE))
    assert found.is_optimal
    assert found.kernel.period == search_kernel(problem, Limits(proves=True)).kernel.period


def test_whoever_reaches_the_bound_ends_the_race() -> None:
    kernel = Kernel(period=4, indices=(0,), starts=(0,))
    was_stopped = threading.Event()

    def slow(stop: object) -> Found:
        assert callable(stop)
        while not stop():
            was_stopped.wait(0.01)
        was_stopped.set()
        return Found(kernel=Kernel(period=9, indices=(0,), starts=(0,)), bound=3, is_smallest=False)

    found = race([slow, lambda _: Found(kernel=kernel, bound=4, is_smallest=True)], limit_s=60.0, should_stop=bool)
    assert was_stopped.is_set()
    assert found == Found(kernel=kernel, bound=4, is_smallest=True)


def test_a_race_that_takes_too_long_gives_the_best_so_far() -> None:
    def slow(stop: object) -> Found:
        assert callable(stop)
        while not stop():
            threading.Event().wait(0.01)
        return Found(kernel=Kernel(period=9, indices=(0,), starts=(0,)), bound=3, is_smallest=False)

    assert race([slow, slow], limit_s=0.1, should_stop=bool).kernel.period == 9


def test_an_error_of_both_is_told_and_z3_is_asked_for_where_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(named_placement("V", 2, ShapeOptions()))
    monkeypatch.setattr(paper, "has_z3", lambda: False)
    assert solve_kernel(problem, Limits(solver=Solver.RACE)).is_optimal
    with pytest.raises(FailedPreconditionError, match="Z3 is not installed"):
        solve_kernel(problem, Limits(solver=Solver.Z3))
