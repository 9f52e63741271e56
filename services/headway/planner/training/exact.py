"""Solves the shardings of chosen stages once more, exactly: equation 3.1 with memory bounded at every operator
(dissertation section 3.4.2). Pure.

The search prices memory, so that what it finds is the best at one of a few prices. Between two of them there can be a
faster choice that still fits. Strategies that no choice better than the known one can have are left out beforehand, by
the bound of the same relaxation; what is left is a small integer program, or nothing, and then the known one is proven
the best.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from headway.core.errors import FailedPreconditionError
from headway.core.plan.training import TrainingStage
from headway.core.training_cluster import TrainingCluster
from headway.planner.intra.elimination import eliminate
from headway.planner.intra.ilp import Solver, solve
from headway.planner.intra.quantities import Floats, Quantity
from headway.planner.training.alpa import Found
from headway.planner.training.graph_cut import FoundGraph
from headway.planner.training.stage_problem import StageProblem
from headway.planner.training.stages import ChosenLayer, StageLayout, StageMaker

_GAIN = 1e-6  # relative: less is rounding
_NUM_PRICES = 16
_STAGE_LIMIT_S = 5.0
_MOST_PAIRS = 100_000  # of strategies of neighbours: a larger program is not solved in that time

P = TypeVar("P", bound=Found | FoundGraph)


def refine(
    found: P,
    maker: StageMaker,
    cluster: TrainingCluster,
    *,
    solver: Solver,
    should_stop: Callable[[], bool],
) -> P:
    """The same pipeline with faster shardings where there are some, the slowest stage first; never a slower one.

    Args:
        maker: of the pipeline's step.
        should_stop: then the other stages stay as they are.
    """
    slowest_first = sorted(enumerate(found.stages), key=lambda each: -each[1].latency_s)
    for number, stage in slowest_first:
        if should_stop():
            break
        memory_bytes = cluster.groups[stage.group].memory_bytes
        made = _Exact(maker, found.layouts[number], found.num_micro_batches, memory_bytes, solver).stage()
        if made is None or made.memory.total_bytes > memory_bytes:
            continue
        made = replace(made, handover_s=stage.handover_s, successors=stage.successors)
        better = replace(found, stages=(*found.stages[:number], made, *found.stages[number + 1 :]))
        if better.iteration_s <= found.iteration_s and made.latency_s <= stage.latency_s * (1 + _GAIN):
            found = better
    return found


@dataclass(slots=True)
class _Exact:
    """The exact solution of one stage."""

    maker: StageMaker
    layout: StageLayout
    num_micro_batches: int
    memory_bytes: int
    solver: Solver

    def stage(self) -> TrainingStage | None:
        """A faster one; None where there is none, or none can be found in time."""
        layers = self.maker.layers(self.layout)
        problem = StageProblem(
            layers=layers,
            memory=replace(self.maker.memory(self.layout, layers), parameters={}),
            num_micro_batches=self.num_micro_batches,
            in_flight=self.layout.in_flight,
            memory_bytes=self.memory_bytes,
        )
        known_s = self._seconds(layers)
        kept = self._promising(problem, known_s)
        if kept is None or problem.num_pairs(kept) > _MOST_PAIRS:
            return None
        try:
            solution = solve(problem.problem(kept), solver=self.solver, time_limit_s=_STAGE_LIMIT_S)
        except FailedPreconditionError:
            return None  # nothing better fits, or the time was too short
        if solution.cost_s >= known_s * (1 - _GAIN):
            return None
        chosen = [problem.strategies[node][kept[node][at]] for node, at in enumerate(solution.strategies[:-1])]
        return self.maker.made(self.layout, problem.chosen(chosen))

    def _seconds(self, layers: Sequence[ChosenLayer]) -> float:
        """Of a micro-batch, with its share of what happens once an iteration."""
        total = np.sum([layer.quantities for layer in layers], axis=0)
        seconds = total[Quantity.FORWARD_S] + total[Quantity.BACKWARD_S]
        return float(seconds + total[Quantity.ONCE_S] / self.num_micro_batches)

    def _promising(self, problem: StageProblem, known_s: float) -> list[list[int]] | None:
        """The strategies of each node that a faster choice may have; None where there can be none."""
        prices = self._prices()
        room = prices * (problem.memory_bytes - problem.constant_bytes)
        costs, own_costs = [], []
        for node, strategies in enumerate(problem.strategies):
            kept_bytes = problem.kept_bytes(node)
            own = (
                np.array([each.seconds for each in strategies])[:, None]
                + prices
                * np.array([each.state_bytes + problem.in_flight * kept_bytes[each.option] for each in strategies])[
                    :, None
                ]
            )
            best = np.full((len(kept_bytes), prices.size), np.inf)
            np.minimum.at(best, [each.option for each in strategies], own)
            costs.append(best)
            own_costs.append(own)
        least = _least_with(problem, costs)
        if least is None:
            return None
        kept = []
        for strategies, best, own, total in zip(problem.strategies, costs, own_costs, least, strict=True):
            options = [each.option for each in strategies]
            bound_s = (total[options] - best[options] + own - room).max(axis=1)
            kept.append(np.flatnonzero(bound_s < known_s * (1 - _GAIN)).tolist())
        return kept if all(kept) else None

    def _prices(self) -> Floats:
        """[prices]: none, and a range around those that the search has."""
        known = np.unique(self.maker.prices.weights[:, Quantity.STATE_BYTES])
        known = known[known > 0]
        if not known.size:
            return np.zeros(1)
        return np.array([0.0, *np.geomspace(known.min() / 3, known.max() * 3, _NUM_PRICES)])


def _least_with(problem: StageProblem, costs: Sequence[Floats]) -> list[Floats] | None:
    """[options, prices] of each node: the least that any choice with an option costs; None where a layer is too wide.

    What comes before a layer and what behind it are added to its ends, so that only layers have to be solved.
    """
    found: dict[int, Floats] = {}
    layers = [_LayerCosts(problem, at, costs) for at in range(len(problem.layers))]
    tables = [layer.table() for layer in layers]
    if any(table is None for table in tables):
        return None
    before = [np.zeros((1, costs[0].shape[1]))]
    for table in tables:
        before.append((before[-1][:, None] + table).min(axis=0))  # type: ignore[operator]
    behind = [np.zeros((1, costs[0].shape[1]))]
    for table in reversed(tables):
        behind.append((behind[-1][None] + table).min(axis=1))  # type: ignore[operator]
    behind.reverse()
    for at, layer in enumerate(layers):
        for number, least in layer.least(before[at], behind[at + 1]):
            if least is None:
                return None
            found[number] = least
    return [found[number] for number in range(len(costs))]


class _LayerCosts:
    """The costs of one layer's nodes; of what enters it the layer before has them."""

    def __init__(self, problem: StageProblem, at: int, costs: Sequence[Floats]) -> None:
        layer = problem.layers[at].problem
        self.numbers = problem.numbers[at]
        self._entering, self._leaving = layer.entering, layer.leaving
        self._costs = [costs[number] for number in self.numbers]
        if at and self._entering is not None:
            self._costs[self._entering] = np.zeros_like(self._costs[self._entering])
        self._edges = list(problem.edges_of(at))

    def table(self) -> Floats | None:
        """[entering options, leaving options, prices]"""
        ends = [node for node in (self._entering, self._leaving) if node is not None]
        found = eliminate(self._costs, self._edges, keep=ends)
        if found is None:
            return None
        entering = 1 if self._entering is None else len(self._costs[self._entering])
        leaving = 1 if self._leaving is None else len(self._costs[self._leaving])
        return found.cost_s.reshape(entering, leaving, -1)

    def least(self, before: Floats, behind: Floats) -> Iterator[tuple[int, Floats | None]]:
        """[options, prices] of each node, by its number; None where the layer is too wide.

        Args:
            before, behind: [options, prices]; what other layers cost with each option of what enters and leaves.
        """
        costs = list(self._costs)
        for node, beyond in ((self._entering, before), (self._leaving, behind)):
            costs[0 if node is None else node] = costs[0 if node is None else node] + beyond
        for node, number in enumerate(self.numbers):
            found = eliminate(costs, self._edges, keep=[node])
            yield number, None if found is None else found.cost_s
