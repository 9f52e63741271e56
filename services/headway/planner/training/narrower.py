"""Chains of stages from smaller search spaces. Pure.

Where a layer is too wide for exact tables only its most promising splits are looked at, and among fewer of them better
ones are found now and then.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headway.core.cost.costs import Costs
from headway.planner.training.alpa import AlpaSearch, Found
from headway.planner.training.baselines import BASELINES
from headway.planner.training.problem import TrainingProblem


def best_with_fewer_splits(
    problem: TrainingProblem, costs: Sequence[Costs], found: Found, *, should_stop: Callable[[], bool]
) -> Found:
    """The chain, or a better one with as many micro-batches that splits no tokens, or no experts, where the model has
    such."""
    best = found
    for baseline in BASELINES.values():
        if baseline.unsplit is None or not baseline.differs(found.step.training):
            continue
        if should_stop():
            break
        space = replace(problem.space, unsplit=problem.space.unsplit | {baseline.unsplit})
        search = AlpaSearch(replace(problem, space=space), costs)
        other = search.cut(search.tables(found.num_micro_batches))
        if other is not None and other.iteration_s < best.iteration_s:
            best = other
    return best
