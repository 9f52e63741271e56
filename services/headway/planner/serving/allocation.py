"""Allocates groups to models.

Nobody has told the planner how the load will split, so it takes every model to be asked for equally many tokens and
makes the model that gives the fewest tokens per second give as many as possible: a spare group goes to where a token
is dearest. With equal groups this greedy choice is optimal; with unequal ones the general problem is NP-hard, and
moving single groups afterwards closes most of the gap.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum

Rates = Sequence[Sequence[float]]
"""`rates[model][group]`: tokens per second of a replica; 0 where the model does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBounds:
    """How many replicas a model has at least and at most; None for as many as there are groups."""

    least: int = 1
    most: int | None = None

    def allows(self, num_replicas: int) -> bool:
        return self.least <= num_replicas and not self.is_above(num_replicas)

    def is_above(self, num_replicas: int) -> bool:
        return self.most is not None and num_replicas > self.most


def allocate(rates: Rates, *, keep: Mapping[int, int], bounds: Sequence[ReplicaBounds] = ()) -> dict[int, int] | None:
    """Allocates each group a model, every model on as many groups as it has to be; None where that is impossible.

    Groups on which nothing fits, or whose models have enough, are left out.

    Args:
        keep: model by group of an earlier allocation; it is extended, and shortened where a model has too many, but not
            changed otherwise if it still serves every model. Else as many groups as possible keep their models, of
            those that are alike.
        bounds: by model; empty for one group of each at least.
    """
    bounds = bounds or [ReplicaBounds()] * len(rates)
    kept = {group: model for group, model in keep.items() if rates[model][group] > 0}
    if kept.keys() == keep.keys() and set(kept.values()) == set(range(len(rates))):
        extended = _give_spares(rates, _shortened(kept, bounds), bounds)
        if _is_allowed(extended, bounds):
            return extended
    assignment = _assign_each(rates, bounds)
    if assignment is None:
        return None
    return _settled(rates, _improve(rates, _give_spares(rates, assignment, bounds), bounds), kept)


def unseated(rates: Rates, bounds: Sequence[ReplicaBounds] = ()) -> list[int]:
    """The models that stay without enough groups when as many as possible get theirs."""
    seats = _seats(bounds or [ReplicaBounds()] * len(rates))
    assigned = set(_match([rates[model] for model in seats], least_rate=0.0).values())
    return sorted({model for seat, model in enumerate(seats) if seat not in assigned})


def _seats(bounds: Sequence[ReplicaBounds]) -> list[int]:
    """Each model as often as it has to have a group."""
    return [model for model, of_model in enumerate(bounds) for _ in range(of_model.least)]


def _shortened(model_of: Mapping[int, int], bounds: Sequence[ReplicaBounds]) -> dict[int, int]:
    """Without the last groups of models that have too many."""
    left: dict[int, int] = {}
    counts: Counter[int] = Counter()
    for group, model in sorted(model_of.items()):
        counts[model] += 1
        if not bounds[model].is_above(counts[model]):
            left[group] = model
    return left


def _settled(rates: Rates, model_of: Mapping[int, int], kept: Mapping[int, int]) -> dict[int, int]:
    """The same allocation with groups that are alike exchanged, so that as many as possible keep their models."""
    alike: defaultdict[tuple[float, ...], list[int]] = defaultdict(list)
    for group in range(len(rates[0])):
        alike[tuple(of_model[group] for of_model in rates)].append(group)
    settled: dict[int, int] = {}
    for groups in alike.values():
        left = Counter(model_of[group] for group in groups if group in model_of)
        moving = []
        for group in groups:
            model = kept.get(group)
            if model is not None and left[model]:
                settled[group] = model
                left[model] -= 1
            else:
                moving.append(group)
        settled.update(zip(moving, left.elements(), strict=False))
    return settled


def _is_allowed(model_of: Mapping[int, int], bounds: Sequence[ReplicaBounds]) -> bool:
    counts = Counter(model_of.values())
    return all(of_model.allows(counts[model]) for model, of_model in enumerate(bounds))


def _assign_each(rates: Rates, bounds: Sequence[ReplicaBounds]) -> dict[int, int] | None:
    """Assigns each model its least number of groups, with the slowest of these replicas as fast as possible."""
    seats = _seats(bounds)
    rows = [rates[model] for model in seats]
    for least_rate in sorted({rate for row in rates for rate in row if rate > 0}, reverse=True):
        assignment = _match(rows, least_rate=least_rate)
        if len(assignment) == len(seats):
            return {group: seats[seat] for group, seat in assignment.items()}
    return None


def _match(rates: Rates, *, least_rate: float) -> dict[int, int]:
    """Finds a largest matching of models to groups over replicas of at least `least_rate`, by augmenting paths."""
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


def _give_spares(rates: Rates, model_of: dict[int, int], bounds: Sequence[ReplicaBounds]) -> dict[int, int]:
    """Gives one spare group after the other to a model that has too few, else to the one that is slowest so far, the
    fastest for it first."""
    model_of = dict(model_of)
    totals, counts = _totals(rates, model_of), Counter(model_of.values())
    spare = [group for group in range(len(rates[0])) if group not in model_of]
    while waiting := [
        (counts[model] >= bounds[model].least, totals[model], model)
        for model, row in enumerate(rates)
        if not bounds[model].is_above(counts[model] + 1) and any(row[group] > 0 for group in spare)
    ]:
        first = min(waiting)[:2]
        negative_rate, model, group = min(
            (-rates[model][group], model, group)
            for *key, model in waiting
            if tuple(key) == first
            for group in spare
            if rates[model][group] > 0
        )
        model_of[group] = model
        totals[model] -= negative_rate
        counts[model] += 1
        spare.remove(group)
    return model_of


def _improve(rates: Rates, model_of: dict[int, int], bounds: Sequence[ReplicaBounds]) -> dict[int, int]:
    """Moves and swaps groups as long as the slowest models gain; every change raises the sorted totals, so it ends."""
    model_of = dict(model_of)
    improved = True
    while improved:
        improved = False
        held: dict[int, list[int]] = {model: [] for model in range(len(rates))}
        for group, model in model_of.items():
            held[model].append(group)
        for moves in _neighbours(len(rates), model_of):
            if all(rates[model][group] > 0 for group, model in moves.items()) and _gains(
                rates, moves, model_of, held, bounds
            ):
                model_of, improved = model_of | moves, True
                break
    return model_of


def _neighbours(num_models: int, model_of: Mapping[int, int]) -> Iterator[dict[int, int]]:
    """Moves of single groups to other models, and swaps."""
    for group, before in model_of.items():
        for model in range(num_models):
            if model != before:
                yield {group: model}
    for first, second in combinations(model_of, 2):
        if model_of[first] != model_of[second]:
            yield {first: model_of[second], second: model_of[first]}


def _gains(
    rates: Rates,
    moves: Mapping[int, int],
    model_of: Mapping[int, int],
    held: Mapping[int, Sequence[int]],
    bounds: Sequence[ReplicaBounds],
) -> bool:
    """Whether moves raise the sorted totals, and no model has too few or too many groups then. Only those that lose or
    win a group count: the others are on both sides of the comparison."""
    concerned = {*moves.values(), *(model_of[group] for group in moves)}
    after = {
        model: [group for group in held[model] if group not in moves]
        + [group for group, winner in moves.items() if winner == model]
        for model in concerned
    }
    if not all(bounds[model].allows(len(groups)) for model, groups in after.items()):
        return False
    before = sorted(_total(rates[model], held[model]) for model in concerned)
    return sorted(_total(rates[model], groups) for model, groups in after.items()) > before


def _total(row: Sequence[float], groups: Sequence[int]) -> float:
    """The same whatever the groups' order, or gains of a rounding would go round in circles."""
    return fsum(row[group] for group in groups)


def _totals(rates: Rates, model_of: Mapping[int, int]) -> list[float]:
    totals = [0.0] * len(rates)
    for group, model in model_of.items():
        totals[model] += rates[model][group]
    return totals
