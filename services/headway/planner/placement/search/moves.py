"""Small changes of a placement: replicas that come, go and swap, groups that are cut anew."""

from collections.abc import Callable
from random import Random

from headway.planner.placement.search.fill import fill
from headway.planner.placement.search.problem import Group, Problem, bits
from headway.planner.placement.search.search_state import Change, SearchState, union

Move = Callable[[SearchState, Random], Change | None]
MOST_GROUPS_RECUT = 3
MOST_SWAPPED = 6
"""Models that change sides in a swap."""
ONE_WAY = 0.4
"""Share of swaps in which nothing need come back."""


def add_replica(state: SearchState, rng: Random) -> Change | None:
    """A model into a group with room; less busy groups, and models that miss more, are likelier."""
    problem, unserved = state.evaluator.problem, state.unserved
    groups = sorted(set(state.groups), key=lambda group: (state.busy[group], group))
    shape, mask = group = groups[int(len(groups) * rng.random() ** 2)]
    free_bytes, weights = problem.free_bytes(group), problem.weights[shape]
    absent = bits(problem.able[shape] & problem.everything & ~mask)
    fitting = [model for model in absent if weights[model] <= free_bytes]
    if not fitting:
        return None
    model = rng.choices(fitting, weights=[unserved[model] + 1.0 for model in fitting])[0]
    return Change(removed=(group,), added=((shape, mask | 1 << model),))


def exchange_replica(state: SearchState, rng: Random) -> Change | None:
    """A model that misses much, into a group in the place of models that other groups have too."""
    problem = state.evaluator.problem
    bit = 1 << _needy(state, rng)
    shape, mask = group = rng.choice(state.groups)
    if mask & bit or not problem.able[shape] & bit:
        return None
    victims = list(bits(mask & _beside(state, group)))
    rng.shuffle(victims)
    after = mask | bit
    if victims:
        after ^= 1 << victims.pop()
    while not problem.fits((shape, after)):
        if not victims:
            return None
        after ^= 1 << victims.pop()
    return Change(removed=(group,), added=((shape, after),))


def drop_replica(state: SearchState, rng: Random) -> Change | None:
    """A model that other groups have too, out of a group."""
    shape, mask = group = rng.choice(state.groups)
    spare = list(bits(mask & _beside(state, group)))
    if not spare:
        return None
    return Change(removed=(group,), added=((shape, mask ^ (1 << rng.choice(spare))),))


def swap_replicas(state: SearchState, rng: Random) -> Change | None:
    """A model of one group into another, and models of the two after it, to and fro, until both have room.

    Where memory is scarce a swap one for one seldom fits: a large model has to go for several small ones.
    """
    problem, groups = state.evaluator.problem, state.groups
    if len(groups) < 2:
        return None
    before = tuple(rng.sample(groups, 2))
    movable = [_movable(problem, before[side], before[1 - side], rng) for side in (0, 1)]
    after, source = list(before), 0
    is_one_way = rng.random() < ONE_WAY
    for number in range(MOST_SWAPPED):
        if not movable[source]:
            return None
        bit, target = 1 << movable[source].pop(), 1 - source
        after[source] = (after[source][0], after[source][1] ^ bit)
        after[target] = (after[target][0], after[target][1] | bit)
        is_full = [not problem.fits(group) for group in after]
        if all(is_full):
            return None
        if not any(is_full) and (number > 0 or is_one_way):
            return Change(removed=before, added=tuple(after))
        source = is_full.index(True) if any(is_full) else target
    return None


def recut(state: SearchState, rng: Random) -> Change | None:
    """The devices of a few groups, cut into others of any shape, with the same models; merges, splits, reshapes."""
    problem, groups = state.evaluator.problem, state.groups
    chosen = rng.sample(groups, min(len(groups), rng.randint(1, MOST_GROUPS_RECUT)))
    shapes = []
    kinds = list(range(len(problem.kinds)))
    if len(kinds) > 1:
        rng.shuffle(kinds)  # of groups that are as busy, models go to the first
    for kind in kinds:
        spare = problem.kinds[kind].num_devices - problem.devices_on(kind, groups)
        shapes += _cut(problem, kind, spare + problem.devices_on(kind, chosen), rng)
    models = union(chosen)
    if rng.random() < 0.3:
        models |= 1 << _needy(state, rng)
    after = _keep(problem, chosen, shapes, models, rng)
    rest = list(groups)
    for group in chosen:
        rest.remove(group)
    if not problem.packs([shape for shape, _ in (*rest, *after)]) or sorted(after) == sorted(chosen):
        return None
    return Change(removed=tuple(chosen), added=tuple(after))


MOVES: tuple[tuple[Move, float], ...] = (
    (add_replica, 2.0),
    (exchange_replica, 2.0),
    (drop_replica, 1.0),
    (swap_replicas, 4.0),
    (recut, 4.0),
)


def _needy(state: SearchState, rng: Random) -> int:
    """A model, likelier the more of its requests miss."""
    unserved = state.unserved
    able = list(bits(state.evaluator.problem.everything))
    return rng.choices(able, weights=[unserved[model] + 1.0 for model in able])[0]


def _beside(state: SearchState, group: Group) -> int:
    """Models of all groups but one."""
    rest = list(state.groups)
    rest.remove(group)
    return union(rest)


def _movable(problem: Problem, group: Group, other: Group, rng: Random) -> list[int]:
    """Models of a group that the other lacks and can serve, in random order."""
    models = list(bits(group[1] & ~other[1] & problem.able[other[0]]))
    rng.shuffle(models)
    return models


def _cut(problem: Problem, kind: int, devices: int, rng: Random) -> list[int]:
    """Shapes that use up devices of a kind as far as they go; often alike."""
    sizes = {shape: problem.shapes[shape].num_devices for shape in problem.shapes_on(kind)}
    shapes: list[int] = []
    while True:
        fitting = [shape for shape, size in sizes.items() if size <= devices]
        if not fitting:
            return shapes
        alike = shapes and shapes[-1] in fitting and rng.random() < 0.6
        shapes.append(shapes[-1] if alike else rng.choice(fitting))
        devices -= sizes[shapes[-1]]


def _keep(problem: Problem, chosen: list[Group], shapes: list[int], models: int, rng: Random) -> list[Group]:
    """Groups of new shapes: one for one with their models where they still fit, else filled anew."""
    if len(shapes) == len(chosen) and rng.random() < 0.5:
        kept = [(shape, mask) for shape, (_, mask) in zip(shapes, chosen, strict=True)]
        if all(problem.fits(group) for group in kept):
            return kept
    return list(fill(problem, shapes, models))
