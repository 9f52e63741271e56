"""Finds the cheapest strategies by integer linear programming (dissertation equation 3.1). Pure.

The quadratic term is made linear by a variable for each pair of strategies of an edge, whose sums over rows and columns
are the strategies' own variables. In that form the relaxation is nearly always integral. Where memory does not bind,
node elimination has the answer sooner, and no program is made.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeAlias

import numpy as np
import pulp
from numpy.typing import NDArray

from headway.core.errors import FailedPreconditionError
from headway.planner.intra.elimination import eliminate
from headway.planner.intra.fold import fold
from headway.planner.intra.problem import Edge, Floats, StrategyProblem

_GAP = 1e-9  # relative
# The relaxation's corner is nearly always the answer, so that looking for others first only takes time.
_HIGHS = {"mip_heuristic_effort": 0.0, "mip_heuristic_run_feasibility_jump": False, "mip_detect_symmetry": False}

Variables: TypeAlias = NDArray[np.object_]
Term: TypeAlias = tuple[pulp.LpVariable, float]


class Solver(StrEnum):
    """An integer programming solver that PuLP drives."""

    HIGHS = "highs"
    CBC = "cbc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The chosen strategies and their cost.

    Attributes:
        strategies: the chosen one of each node, by its index.
        cost_s: the objective of equation 3.1.
        peak_bytes: the most memory that is held at the same time.
        is_optimal: False where the time limit cut the search short.
    """

    strategies: tuple[int, ...]
    cost_s: float
    peak_bytes: float
    is_optimal: bool


def solve(problem: StrategyProblem, *, solver: Solver = Solver.HIGHS, time_limit_s: float | None = None) -> Solution:
    """Finds the cheapest choice of strategies that fits the memory.

    Raises:
        FailedPreconditionError: no choice is possible, or none that fits; says how many bytes are missing.
    """
    cost_s, edges = fold(problem)
    unbounded = _unbounded(cost_s, edges)
    if unbounded is not None and np.isfinite(problem.objective_s(unbounded)) and _fits(problem, unbounded):
        return _solution(problem, unbounded, is_optimal=True)
    program = _Program(problem, cost_s, edges, solver=solver, time_limit_s=time_limit_s)
    if problem.memory_limit_bytes is not None:
        program.bound_memory(problem.memory_limit_bytes)
    strategies = program.solve()
    return _solution(problem, strategies, is_optimal=program.is_optimal)


def _unbounded(cost_s: Sequence[Floats], edges: Sequence[Edge]) -> tuple[int, ...] | None:
    """The cheapest choice of all; None where the graph is too wide to find it without a program."""
    found = eliminate([costs[:, None] for costs in cost_s], edges)
    return None if found is None else tuple(int(found.strategies[node][0]) for node in range(len(cost_s)))


def _fits(problem: StrategyProblem, strategies: Sequence[int]) -> bool:
    limit = problem.memory_limit_bytes
    return limit is None or problem.peak_bytes(strategies) <= limit


def _solution(problem: StrategyProblem, strategies: tuple[int, ...], *, is_optimal: bool) -> Solution:
    return Solution(
        strategies=strategies,
        cost_s=problem.objective_s(strategies),
        peak_bytes=problem.peak_bytes(strategies),
        is_optimal=is_optimal,
    )


class _Program:
    """The integer linear program of one problem."""

    def __init__(
        self,
        problem: StrategyProblem,
        cost_s: Sequence[Floats],
        edges: Sequence[Edge],
        *,
        solver: Solver,
        time_limit_s: float | None,
    ) -> None:
        self._problem = problem
        self._solver = solver
        self._options = {"msg": False, "timeLimit": time_limit_s, "gapRel": _GAP, "threads": 1}
        self._lp = pulp.LpProblem("strategies", pulp.LpMinimize)
        self._chosen = [self._variables(f"s{i}", costs, category=pulp.LpBinary) for i, costs in enumerate(cost_s)]
        terms: list[Term] = []
        for variables, costs in zip(self._chosen, cost_s, strict=True):
            terms += _terms(variables, costs)
        for variables in self._chosen:
            self._lp += _sum(variables) == 1
        for i, edge in enumerate(edges):
            pairs = self._variables(f"e{i}", edge.cost_s, category=pulp.LpContinuous)
            terms += _terms(pairs, edge.cost_s)
            for variables, sums in ((self._chosen[edge.source], pairs), (self._chosen[edge.target], pairs.T)):
                for variable, row in zip(variables, sums, strict=True):
                    if variable is not None:
                        self._lp += _sum(row) == variable
        self._lp += pulp.LpAffineExpression(terms)

    def _variables(self, name: str, costs: Floats, *, category: str) -> Variables:
        """A variable for each finite cost; None for the others."""
        made = np.full(costs.shape, None, dtype=object)
        for index in zip(*np.isfinite(costs).nonzero(), strict=True):
            made[index] = self._lp.add_variable("_".join((name, *map(str, index))), 0, 1, category)
        return made

    @property
    def is_optimal(self) -> bool:
        return bool(self._lp.sol_status == pulp.LpSolutionOptimal)

    def bound_memory(self, limit_bytes: float) -> None:
        """Bounds memory, counted in shares of the limit, so that bytes and seconds are of one order of magnitude."""
        for live in _maximal(self._problem.live):
            shares: dict[int, Floats] = {}
            for tensor in (self._problem.tensors[index] for index in live):
                shares[tensor.node] = shares.get(tensor.node, 0) + tensor.shard_bytes / limit_bytes
            terms = [term for node, share in shares.items() for term in _terms(self._chosen[node], share)]
            self._lp += pulp.LpAffineExpression(terms) <= 1

    def solve(self) -> tuple[int, ...]:
        command = partial(pulp.HiGHS, **_HIGHS) if self._solver is Solver.HIGHS else pulp.PULP_CBC_CMD
        self._lp.solve(command(**self._options))
        if self._lp.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            raise self._none_found()
        return tuple(int(np.argmax([_value(variable) for variable in row])) for row in self._chosen)

    def _none_found(self) -> FailedPreconditionError:
        limit = self._problem.memory_limit_bytes
        smallest = np.array([tensor.shard_bytes.min() for tensor in self._problem.tensors])
        least_bytes = max((float(smallest[list(live)].sum()) for live in self._problem.live), default=0.0)
        missing = least_bytes - (limit or 0)
        if limit is None or missing <= 0:
            return FailedPreconditionError(
                "No choice of strategies was found: they exclude each other, or the time was too short.",
                hint="Give it more time, or more memory.",
            )
        return FailedPreconditionError(
            f"No choice of strategies fits into {limit:.0f} bytes a device: {missing:.0f} more are needed at least.",
            hint="Use more devices or smaller micro-batches.",
        )


def _terms(variables: Variables, values: Floats) -> list[Term]:
    pairs = zip(variables.flat, values.flat, strict=True)
    return [(variable, float(value)) for variable, value in pairs if variable is not None and value != 0]


def _sum(variables: Variables) -> pulp.LpAffineExpression:
    return pulp.LpAffineExpression([(variable, 1) for variable in variables if variable is not None])


def _value(variable: pulp.LpVariable | None) -> float:
    return -1.0 if variable is None else float(variable.varValue or 0)


def _maximal(live: Sequence[Sequence[int]]) -> Iterator[frozenset[int]]:
    """The sets that are no subset of another one."""
    sets = sorted({frozenset(nodes) for nodes in live}, key=len, reverse=True)
    kept: list[frozenset[int]] = []
    for nodes in sets:
        if not any(nodes <= other for other in kept):
            kept.append(nodes)
            yield nodes
