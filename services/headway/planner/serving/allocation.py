"""Allocates groups to models.

Nobody has told the planner how the load will split, so it takes every model to be asked for equally many tokens and
makes the model that gives the fewest tokens per second give as many as possible: a spare group goes to where a token
is dearest. With equal groups this greedy choice is optimal; with unequal ones the general problem is NP-hard, and
moving single groups afterwards closes most of the gap.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

Rates = Sequence[Sequence[float]]
"""`rates[model][group]`: tokens per second of a replica; 0 where the model does not fit."""


def allocate(rates: Rates, *, keep: Mapping[int, int]) -> dict[int, int] | None:
    """Model by group, every model on one group at least; None where that is impossible.

    Groups on which nothing fits are left out.

    Args:
        keep: model by group of an earlier allocation; it is extended, not changed, if it still serves every model.
    """
    models = range(len(rates))
    kept = {group: model for group, model in keep.items() if rates[model][group] > 0}
    if kept.keys() == keep.keys() and set(kept.values()) == set(models):
        return _give_spares(rates, kept)
    assignment = _assign_each(rates)
    return None if assignment is None else _improve(rates, _give_spares(rates, assignment))


def unseated(rates: Rates) -> list[int]:
    """Models that stay without a group when as many as possible get one."""
    assigned = set(_match(rates, least_rate=0.0).values())
    return [model for model in range(len(rates)) if model not in assigned]


def _assign_each(rates: Rates) -> dict[int, int] | None:
    """One group for each model, the slowest of these replicas as fast as possible."""
    for least_rate in sorted({rate for row in rates for rate in row if rate > 0}, reverse=True):
        assignment = _match(rates, least_rate=least_rate)
        if len(assignment) == len(rates):
            return assignment
    return None


def _match(rates: Rates, *, least_rate: float) -> dict[int, int]:
    """A largest matching of models to groups over replicas of at least `least_rate`, by augmenting paths."""
    model_of: dict[int, int] = {}

    def assign_workers(model: int, tried: set[int]) -> bool:
        for group, rate in enumerate(rates[model]):
            if rate > 0 and rate >= least_rate and group not in tried:
                tried.add(group)
                if group not in model_of or assign_workers(model_of[group], tried):
                    model_of[group] = model
                    return True
        return False

    for model in range(len(rates)):
        assign_workers(model, set())
    return model_of


def _give_spares(rates: Rates, model_of: dict[int, int]) -> dict[int, int]:
    """Gives one spare group after the other to the model that is slowest so far, the fastest for it first."""
    model_of = dict(model_of)
    totals = _totals(rates, model_of)
    spare = [group for group in range(len(rates[0])) if group not in model_of]
    while gains := [
        (totals[model], -rate, model, group)
        for model, row in enumerate(rates)
        for group in spare
        if (rate := row[group]) > 0
    ]:
        _, negative_rate, model, group = min(gains)
        model_of[group] = model
        totals[model] -= negative_rate
        spare.remove(group)
    return model_of


def _improve(rates: Rates, model_of: dict[int, int]) -> dict[int, int]:
    """Moves and swaps groups as long as the slowest models gain; every change raises the sorted totals, so it ends."""
    best = _score(rates, model_of)
    improved = True
    while improved:
        improved = False
        for changed in _neighbours(len(rates), model_of):
            if any(rates[model][group] <= 0 for group, model in changed.items()):
                continue
            if (score := _score(rates, changed)) > best:
                model_of, best, improved = changed, score, True
                break
    return model_of


def _neighbours(num_models: int, model_of: Mapping[int, int]) -> Iterator[dict[int, int]]:
    for group in model_of:
        for model in range(num_models):
            yield {**model_of, group: model}
    for first, second in combinations(model_of, 2):
        yield {**model_of, first: model_of[second], second: model_of[first]}


def _score(rates: Rates, model_of: Mapping[int, int]) -> list[float]:
    return sorted(_totals(rates, model_of))


def _totals(rates: Rates, model_of: Mapping[int, int]) -> list[float]:
    totals = [0.0] * len(rates)
    for group, model in model_of.items():
        totals[model] += rates[model][group]
    return totals
