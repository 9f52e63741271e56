"""Allocates groups to models.

Nobody has told the planner how the load will split, so it takes every model to be asked for equally many tokens and
makes the model that gives the fewest tokens per second give as many as possible: a spare group goes to where a token
is dearest. With equal groups this greedy choice is optimal; with unequal ones the general problem is NP-hard, and
moving single groups afterwards closes most of the gap.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import ceil

from headway.planner.serving.exchange import LEAST_GAIN, exchanged
from headway.planner.serving.layouts import CERTAIN_GAIN
from headway.planner.serving.replica_bounds import ReplicaBounds

Rates = Sequence[Sequence[float]]
"""`rates[model][group]`: tokens per second of a replica; 0 where the model does not fit."""


def allocate(rates: Rates, *, keep: Mapping[int, int], bounds: Sequence[ReplicaBounds] = ()) -> dict[int, int] | None:
    """Allocates each group a model, every model on as many groups as it has to be; None where that is impossible.

    Groups on which nothing fits, or whose models have enough, are left out.

    Args:
        keep: model by group of an earlier allocation; it is extended, and shortened where a model has too many, but not
            changed otherwise if it still serves every model. Models that have too few groups take some of others. Where
            the slowest would have twice as much from another allocation, that is taken; as many groups as possible then
            keep their models, of those that are alike.
        bounds: by model; empty for one group of each at least.
    """
    bounds = bounds or [ReplicaBounds()] * len(rates)
    kept = {group: model for group, model in keep.items() if rates[model][group] > 0}
    grown = _give_to_short(rates, _give_spares(rates, _shortened(kept, bounds), bounds), bounds, Counter(kept.values()))
    is_kept = bool(kept) and _is_allowed(grown, bounds)
    is_whole = kept.keys() == keep.keys() and set(kept.values()) == set(range(len(rates)))
    least_rate = CERTAIN_GAIN * min(_totals(rates, grown))
    if is_kept and (is_whole or not _may_have(rates, bounds, least_rate)):
        return grown
    assignment = _assign_each(rates, bounds)
    if assignment is None:
        return None
    anew = exchanged(rates, _give_spares(rates, assignment, bounds), bounds)
    if is_kept and min(_totals(rates, anew)) < least_rate:
        return grown
    return _settled(rates, anew, kept)


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


def _give_to_short(
    rates: Rates, model_of: Mapping[int, int], bounds: Sequence[ReplicaBounds], before: Mapping[int, int]
) -> dict[int, int]:
    """Gives groups of others to the models that had too few, one after the other to the slowest of them: as many as
    they have to have, and more while the slower of both gains.

    Args:
        before: how many groups each model had.
    """
    model_of = dict(model_of)
    short = {model for model, of_model in enumerate(bounds) if before.get(model, 0) < of_model.least}
    totals, counts = _totals(rates, model_of), Counter(model_of.values())
    while short:
        taker = min(short, key=lambda model: (counts[model] >= bounds[model].least, totals[model], model))
        offers = [
            (min(left := totals[giver] - rates[giver][group], totals[taker] + rates[taker][group]), left, -group)
            for group, giver in model_of.items()
            if giver != taker and rates[taker][group] > 0 and counts[giver] > bounds[giver].least
        ]
        slower, _, group = max(offers, default=(0.0, 0.0, 0))
        is_needed = bool(offers) and counts[taker] < bounds[taker].least
        gains = slower > totals[taker] * (1 + LEAST_GAIN)
        if bounds[taker].is_above(counts[taker] + 1) or not (is_needed or gains):
            short.remove(taker)
            continue
        giver, model_of[-group] = model_of[-group], taker
        counts.update({taker: 1, giver: -1})
        totals = _totals(rates, model_of)
    return model_of


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


def _may_have(rates: Rates, bounds: Sequence[ReplicaBounds], least_rate: float) -> bool:
    """False where no allocation gives each model that rate: groups are too few, even were all of them its fastest."""
    fastest = [max(row) for row in rates]
    needed = [max(of_model.least, ceil(least_rate / rate)) for of_model, rate in zip(bounds, fastest, strict=True)]
    is_in_bounds = not any(of_model.is_above(num) for of_model, num in zip(bounds, needed, strict=True))
    return is_in_bounds and sum(needed) <= len(rates[0])


def _is_allowed(model_of: Mapping[int, int], bounds: Sequence[ReplicaBounds]) -> bool:
    counts = Counter(model_of.values())
    return all(of_model.allows(counts[model]) for model, of_model in enumerate(bounds))


def _assign_each(rates: Rates, bounds: Sequence[ReplicaBounds]) -> dict[int, int] | None:
    """Assigns each model its least number of groups, with the slowest of these replicas as fast as possible."""
    seats = _seats(bounds)
    rows = [rates[model] for model in seats]
    least_rates = sorted({rate for row in rates for rate in row if rate > 0}, reverse=True)
    tried: dict[float, dict[int, int]] = {}

    def has_seats(rate: float) -> bool:
        tried[rate] = _match(rows, least_rate=rate)
        return len(tried[rate]) == len(seats)

    first = bisect_left(least_rates, 1, key=has_seats)
    if first == len(least_rates):
        return None
    return {group: seats[seat] for group, seat in tried[least_rates[first]].items()}


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


def _totals(rates: Rates, model_of: Mapping[int, int]) -> list[float]:
    totals = [0.0] * len(rates)
    for group, model in model_of.items():
        totals[model] += rates[model][group]
    return totals
