"""The graph-level optimiser on costs that are known."""

import random
from itertools import pairwise

from headway.planner.backends.evolution import Digits, Evolution, crossed


def seconds_of(digits: Digits) -> float:
    """A library gains where two neighbours are on it, so that single changes never help."""
    pairs = sum(a == b == 1 for a, b in pairwise(digits))
    return 10.0 + 0.5 * sum(digit == 1 for digit in digits) + sum(digit == 2 for digit in digits) - pairs


def run(evolution: Evolution, seeds: list[Digits]) -> dict[Digits, float]:
    measured: dict[Digits, float] = {}
    while wanted := evolution.wanted(seeds, measured):
        assert not measured.keys() & set(wanted)
        measured |= {each: seconds_of(each) for each in wanted}
    return measured


def test_it_finds_what_pays_only_together() -> None:
    evolution = Evolution(num_libraries=2, population=12, generations=30, patience=10, seed=1)
    measured = run(evolution, [(0,) * 6])
    assert min(measured.values()) == seconds_of((1,) * 6)


def test_it_is_never_worse_than_its_seeds_and_measures_nothing_twice() -> None:
    seeds = [(0,) * 5, (1,) * 5, (2,) * 5]
    measured = run(Evolution(num_libraries=2, seed=3), seeds)
    assert set(seeds) <= measured.keys()
    assert min(measured.values()) <= min(seconds_of(each) for each in seeds)


def test_the_same_answers_give_the_same_search() -> None:
    evolution = Evolution(num_libraries=2, seed=5)
    assert list(run(evolution, [(0,) * 6])) == list(run(evolution, [(0,) * 6]))


def test_placements_that_cannot_run_do_not_end_it() -> None:
    evolution = Evolution(num_libraries=1, population=4, generations=3, seed=0)
    measured: dict[Digits, float] = {}
    while wanted := evolution.wanted([(0, 0, 0)], measured):
        measured |= {each: float("inf") if 1 in each else 1.0 for each in wanted}
    assert min(measured, key=lambda each: measured[each]) == (0, 0, 0)


def test_without_libraries_there_is_nothing_to_evolve() -> None:
    assert run(Evolution(num_libraries=0), [(0, 0)]) == {(0, 0): 10.0}


def test_crossover_takes_a_stretch_of_the_father() -> None:
    generator = random.Random(7)
    for _ in range(100):
        child = crossed((0,) * 8, (1,) * 8, generator)
        assert "01010" not in "".join(map(str, (0, *child, 0)))
        assert len(child) == 8
