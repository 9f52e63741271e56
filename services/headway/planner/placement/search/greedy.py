"""Algorithm 3: models into given groups, one replica after the other, guided by the simulator."""

from collections.abc import Sequence

from headway.planner.placement.search.evaluator import Evaluator
from headway.planner.placement.search.problem import Group, Groups, bits
from headway.planner.placement.search.search_state import SearchState, evaluate


def select_by_beam(evaluator: Evaluator, shapes: Sequence[int], models: int, *, beam_size: int) -> Groups:
    """Simulates every model in every group; the best `beam_size` selections go on, until nothing more fits."""
    problem = evaluator.problem
    empty = tuple(sorted((shape, 0) for shape in shapes))
    best = evaluate(evaluator, empty)
    beam = [empty]
    while True:
        grown = {
            with_group(groups, group, (group[0], group[1] | 1 << model))
            for groups in beam
            for group in set(groups)
            for model in bits(models & ~group[1])
            if problem.fits((group[0], group[1] | 1 << model))
        }
        if not grown:
            return best.groups
        ranked = sorted((evaluate(evaluator, groups) for groups in sorted(grown)), key=lambda state: state.cost)
        beam = [state.groups for state in ranked[:beam_size]]
        best = min(best, ranked[0], key=lambda state: state.cost)


def select_unserved(evaluator: Evaluator, shapes: Sequence[int], models: int) -> Groups:
    """Simulates once a step: the model with most unserved requests goes to the least utilised group that takes it."""
    problem = evaluator.problem
    best = state = evaluate(evaluator, tuple((shape, 0) for shape in shapes))
    while True:
        grown = _grow(state, models)
        if grown is None:
            return best.groups
        state = evaluate(evaluator, with_group(state.groups, *grown))
        best = min(best, state, key=lambda each: each.cost)
        if state.misses[-1] == evaluator.missing(problem.everything & ~models)[-1]:
            return best.groups  # nobody is unserved


def _grow(state: SearchState, models: int) -> tuple[Group, Group] | None:
    """Chooses the group that changes, and what it becomes."""
    problem = state.evaluator.problem
    for model in sorted(bits(models), key=lambda each: -state.unserved[each]):
        bit = 1 << model
        able = [group for group in state.groups if not group[1] & bit and problem.fits((group[0], group[1] | bit))]
        if able:
            group = min(able, key=lambda each: (state.busy[each], each))
            return group, (group[0], group[1] | bit)
    return None


def with_group(groups: Groups, old: Group, new: Group) -> Groups:
    """Replaces a group by another one."""
    rest = list(groups)
    rest.remove(old)
    return tuple(sorted([*rest, new]))
