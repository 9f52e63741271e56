"""A placement under search, with what is known of each of its components."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headway.planner.placement.search.evaluator import Component, Evaluator
from headway.planner.placement.search.problem import Group, Groups


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """A change: groups that are removed and groups that are added."""

    removed: tuple[Group, ...]
    added: tuple[Group, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchState:
    """A placement under search, by its components.

    Attributes:
        idle: groups without a model.
        absent: models with requests that no group has.
    """

    evaluator: Evaluator
    components: tuple[Component, ...]
    idle: Groups
    absent: int

    @cached_property
    def groups(self) -> Groups:
        return tuple(sorted([*self.idle, *(group for each in self.components for group in each.groups)]))

    @cached_property
    def misses(self) -> NDArray[np.int64]:
        return self.evaluator.missing(self.absent) + np.sum(
            [each.misses for each in self.components], axis=0, dtype=np.int64
        )

    @cached_property
    def cost(self) -> float:
        """Number of requests that missed, plus a little for those that were in time but close to it."""
        return float(self.misses[-1]) + sum(each.slack_cost for each in self.components)

    @cached_property
    def attainment(self) -> float:
        return 1 - float(self.misses[-1]) / len(self.evaluator.problem.workload)

    @cached_property
    def unserved(self) -> list[float]:
        """Number of requests that missed, by model."""
        met = np.sum([each.met for each in self.components], axis=0, dtype=np.int64)
        missed: list[float] = (self.evaluator.problem.counts - met).tolist()
        return missed

    @cached_property
    def busy(self) -> dict[Group, float]:
        """Share of the trace that the slowest stage of a group was busy; of equal groups, one's."""
        problem = self.evaluator.problem
        per_request = problem.load / np.maximum(problem.counts, 1)
        busy = dict.fromkeys(self.idle, 0.0)
        for component in self.components:
            for row, group in enumerate(component.groups):
                busy[group] = float(component.served[row] @ per_request[group[0]])
        return busy

    def after(self, change: Change) -> "SearchState | None":
        """Returns the placement after a change if it is better; None if not."""
        evaluator = self.evaluator
        touched = 0
        for _, models in (*change.removed, *change.added):
            touched |= models
        near: list[Component] = []
        far: list[Component] = []
        for component in self.components:
            (near if any(models & touched for _, models in component.groups) else far).append(component)
        idle = list(self.idle)
        groups = [group for component in near for group in component.groups]
        for group in change.removed:
            (groups if group[1] else idle).remove(group)
        for group in change.added:
            (groups if group[1] else idle).append(group)
        absent = evaluator.problem.everything & ~union([*groups, *(group for each in far for group in each.groups)])
        before = evaluator.missing(self.absent) + np.sum([each.misses for each in near], axis=0, dtype=np.int64)
        budget = evaluator.race(before) - evaluator.missing(absent)
        if (budget < 0).any():
            return None
        fresh = _weigh_all(evaluator, evaluator.split(groups), budget)
        if fresh is None:
            return None
        after = SearchState(evaluator=evaluator, components=(*far, *fresh), idle=tuple(sorted(idle)), absent=absent)
        return after if after.cost < self.cost - 1e-9 else None


def evaluate(evaluator: Evaluator, groups: Sequence[Group]) -> SearchState:
    """Simulates a whole placement."""
    components = [evaluator.weigh(each) for each in evaluator.split(groups)]
    return SearchState(
        evaluator=evaluator,
        components=tuple(each for each in components if each is not None),
        idle=tuple(sorted(group for group in groups if not group[1])),
        absent=evaluator.problem.everything & ~union(groups),
    )


def union(groups: Sequence[Group]) -> int:
    models = 0
    for _, mask in groups:
        models |= mask
    return models


def _weigh_all(evaluator: Evaluator, parts: Sequence[Groups], budget: NDArray[np.int64]) -> list[Component] | None:
    found = []
    for part in parts:
        component = evaluator.weigh(part, budget)
        if component is None:
            return None
        budget = budget - component.misses
        found.append(component)
    return found
