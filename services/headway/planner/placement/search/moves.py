"""Small changes of a placement: replicas that come, go and swap, groups that are cut anew."""

from collections.abc import Callable
from random import Random

from headway.planner.placement.search.fill import fill
from headway.planner.placement.search.problem import Group, Problem, bits
from headway.planner.placement.search.search_state import Change, SearchState, union

Move = Callable[[SearchState, Random], Change | None]
MOST_GROUPS_RECUT = 3


def add_replica(state: SearchState, rng: Random) -> Change | None:
    """Adds a model that misses much to a group with room; less busy groups are likelier."""
    problem = state.evaluator.problem
    model = _needy(state, rng)
    bit = 1 << model
    roomy = [group for group in set(state.groups) if not group[1] & bit and problem.fits((group[0], group[1] | bit))]
    if not roomy:
        return None
    roomy.sort(key=lambda group: (state.busy[group], group))
    group = roomy[int(len(roomy) * rng.random() ** 2)]
    return Change(removed=(group,), added=((group[0], group[1] | bit),))


def exchange_replica(state: SearchState, rng: Random) -> Change | None:
    """Puts a model that misses much into a group in the place of others."""
    problem = state.evaluator.problem
    model = _needy(state, rng)
    bit = 1 << model
    shape, mask = rng.choice(state.groups)
    if mask & bit or not problem.able[shape] & bit:
        return None
    victims = list(bits(mask))
    rng.shuffle(victims)
    after = mask | bit
    if victims:
        after ^= 1 << victims.pop()
    while not problem.fits((shape, after)):
        after ^= 1 << victims.pop()
    return Change(removed=((shape, mask),), added=((shape, after),))


def drop_replica(state: SearchState, rng: Random) -> Change | None:
    """Drops a model that has other replicas from a group."""
    shape, mask = rng.choice(state.groups)
    if not mask:
        return None
    after = mask ^ (1 << rng.choice(list(bits(mask))))
    return Change(removed=((shape, mask),), added=((shape, after),))


def swap_replicas(state: SearchState, rng: Random) -> Change | None:
    """Swaps a model of one group for a model of another, or for nothing."""
    problem, groups = state.evaluator.problem, state.groups
    if len(groups) < 2:
        return None
    (shape, mask), (other_shape, other) = rng.sample(groups, 2)
    only, other_only = list(bits(mask & ~other)), list(bits(other & ~mask))
    if not only:
        return None
    moved = 1 << rng.choice(only)
    back = 1 << rng.choice(other_only) if other_only and rng.random() < 0.7 else 0
    first, second = (shape, mask ^ moved ^ back), (other_shape, other ^ moved ^ back)
    if not problem.fits(first) or not problem.fits(second):
        return None
    return Change(removed=((shape, mask), (other_shape, other)), added=(first, second))


def recut(state: SearchState, rng: Random) -> Change | None:
    """Cuts the devices of a few groups into others of any shape, with the same models; it merges, splits and
    reshapes."""
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
    (swap_replicas, 2.0),
    (recut, 4.0),
)


def _needy(state: SearchState, rng: Random) -> int:
    """Draws a model, likelier the more of its requests miss."""
    unserved = state.unserved
    able = list(bits(state.evaluator.problem.everything))
    return rng.choices(able, weights=[unserved[model] + 1.0 for model in able])[0]


def _cut(problem: Problem, kind: int, devices: int, rng: Random) -> list[int]:
    """Draws shapes that use up devices of a kind as far as they go; often equal ones."""
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
    """Fills groups of new shapes: one for one with their models where they still fit, else anew."""
    if len(shapes) == len(chosen) and rng.random() < 0.5:
        kept = [(shape, mask) for shape, (_, mask) in zip(shapes, chosen, strict=True)]
        if all(problem.fits(group) for group in kept):
            return kept
    return list(fill(problem, shapes, models))
