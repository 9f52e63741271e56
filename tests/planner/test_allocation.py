"""Replica allocation against brute force."""

import random
from itertools import product

import pytest

from headway.planner.serving.allocation import allocate, unseated
from headway.planner.serving.replica_bounds import ReplicaBounds

Rates = list[list[float]]


def slowest_total(rates: Rates, model_of: dict[int, int]) -> float:
    totals = [0.0] * len(rates)
    for worker, model in model_of.items():
        totals[model] += rates[model][worker]
    return min(totals)


def best_slowest_total(rates: Rates) -> float:
    """Of all allocations; 0 where no allocation serves every model."""
    models = range(len(rates))
    return max(slowest_total(rates, dict(enumerate(choice))) for choice in product(models, repeat=len(rates[0])))


def random_rates(seed: int, *, share_that_fits: float) -> Rates:
    generator = random.Random(seed)
    num_models, num_workers = generator.randint(1, 3), generator.randint(1, 6)
    return [
        [generator.uniform(1, 10) if generator.random() < share_that_fits else 0.0 for _ in range(num_workers)]
        for _ in range(num_models)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_on_equal_workers_the_allocation_is_optimal(seed: int) -> None:
    generator = random.Random(seed)
    num_models = generator.randint(1, 4)
    num_workers = generator.randint(num_models, 6)
    rates = [[generator.uniform(1, 10)] * num_workers for _ in range(num_models)]
    model_of = allocate(rates, keep={})
    assert model_of is not None
    assert slowest_total(rates, model_of) == pytest.approx(best_slowest_total(rates))


@pytest.mark.parametrize("share_that_fits", [0.4, 0.7, 1.0])
def test_an_allocation_is_found_exactly_when_there_is_one_and_is_near_the_best(share_that_fits: float) -> None:
    ratios = []
    for seed in range(150):
        rates = random_rates(seed, share_that_fits=share_that_fits)
        model_of, best = allocate(rates, keep={}), best_slowest_total(rates)
        if model_of is None:
            assert best == 0
            assert unseated(rates)
            continue
        assert unseated(rates) == []
        assert all(rates[model][worker] > 0 for worker, model in model_of.items())
        ratios.append(slowest_total(rates, model_of) / best)
    assert min(ratios) > 0.75
    assert sum(ratios) / len(ratios) > 0.99


def test_every_worker_that_fits_a_model_is_used() -> None:
    rates = [[1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]]
    model_of = allocate(rates, keep={})
    assert model_of is not None
    assert model_of.keys() == {0, 1, 2}


def test_spare_workers_go_where_tokens_are_dearest() -> None:
    rates = [[35.0] * 5, [10.0] * 5]
    model_of = allocate(rates, keep={})
    assert model_of is not None
    assert sorted(model_of.values()) == [0, 1, 1, 1, 1]


def test_what_was_allocated_is_kept_and_only_new_workers_are_given_out() -> None:
    rates = [[30.0] * 4, [10.0] * 4]
    assert allocate(rates, keep={0: 0, 1: 1, 2: 0}) == {0: 0, 1: 1, 2: 0, 3: 1}


def test_an_allocation_that_leaves_a_model_out_is_not_kept() -> None:
    rates = [[5.0, 5.0], [5.0, 5.0]]
    model_of = allocate(rates, keep={0: 0, 1: 0})
    assert model_of is not None
    assert sorted(model_of.values()) == [0, 1]


def test_models_without_a_worker_are_named() -> None:
    rates = [[1.0, 0.0], [1.0, 0.0]]
    assert allocate(rates, keep={}) is None
    assert unseated(rates) == [1]


def allocated(rates: Rates, *bounds: ReplicaBounds, keep: dict[int, int] | None = None) -> list[int] | None:
    """How many groups each model has."""
    model_of = allocate(rates, keep=keep or {}, bounds=bounds)
    return None if model_of is None else [list(model_of.values()).count(model) for model in range(len(rates))]


def test_bounds_of_replicas_are_kept() -> None:
    rates = [[35.0] * 5, [10.0] * 5]
    free = ReplicaBounds()
    assert allocated(rates, free, free) == [1, 4]
    assert allocated(rates, ReplicaBounds(least=3), free) == [3, 2]
    assert allocated(rates, free, ReplicaBounds(most=2)) == [3, 2]
    assert allocated(rates, ReplicaBounds(most=1), ReplicaBounds(most=2)) == [1, 2]
    assert allocated(rates, ReplicaBounds(least=3), ReplicaBounds(least=3)) is None
    assert unseated(rates, [ReplicaBounds(least=3), ReplicaBounds(least=3)]) == [1]


def test_an_allocation_grows_and_shrinks_to_its_bounds_and_stays_otherwise() -> None:
    rates, free = [[30.0] * 4, [10.0] * 4], ReplicaBounds()
    kept = {0: 0, 1: 1, 2: 0, 3: 1}
    shrunk = [ReplicaBounds(most=1), ReplicaBounds(most=2)]
    assert allocate(rates, keep=kept, bounds=shrunk) == {0: 0, 1: 1, 3: 1}
    assert allocated(rates, ReplicaBounds(least=3), free, keep=kept) == [3, 1]
    assert allocate(rates, keep={0: 0, 1: 1}, bounds=[ReplicaBounds(least=3), free]) == {0: 0, 1: 1, 2: 0, 3: 0}


def test_one_more_model_takes_its_groups_and_the_others_stay() -> None:
    keep = {group: group // 2 for group in range(24)}
    for newcomer in (0, 12):
        names = [model + (model >= newcomer) for model in range(12)]
        before = {group: names[model] for group, model in keep.items()}
        after = allocate([[1.0] * 24 for _ in range(13)], keep=before)
        assert after is not None
        changed = {group for group in before if after[group] != before[group]}
        assert len(changed) == list(after.values()).count(newcomer) <= 2
        assert {after[group] for group in changed} == {newcomer}


def test_one_more_model_takes_its_groups_where_groups_are_unlike() -> None:
    """Others could be spread better then. They are not moved for that, only where the slowest would have twice as
    much."""
    row = [1.0] * 16 + [2.7] * 8
    keep = allocate([row] * 6, keep={})
    assert keep is not None
    after = allocate([row] * 7, keep=keep)
    assert after is not None
    changed = {group for group in keep if after[group] != keep[group]}
    assert {after[group] for group in changed} == {6}
    assert slowest_total([row] * 7, after) > slowest_total([row] * 7, allocate([row] * 7, keep={}) or {}) / 2

    worst = {group: 0 for group in range(24) if group != 23} | {23: 1}
    spread = allocate([row] * 3, keep=worst)
    assert spread is not None
    assert slowest_total([row] * 3, spread) > 2 * 2.7


def test_a_model_that_has_lost_its_groups_takes_some_and_nothing_else_moves() -> None:
    keep = {group: group // 4 for group in range(20)}
    after = allocate([[1.0] * 20 for _ in range(6)], keep=keep)
    assert after is not None
    assert {after[group] for group in keep if after[group] != keep[group]} == {5}
