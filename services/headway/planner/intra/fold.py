"""Folds edge costs of a problem into its nodes, where nodes alone can express them. Pure."""

import numpy as np

from headway.planner.intra.problem import Edge, Floats, StrategyProblem

_ROUNDING = 1e-12


def fold(problem: StrategyProblem) -> tuple[list[Floats], list[Edge]]:
    """Costs of nodes and the edges that are left, with the same objective for every choice.

    Parallel edges are one; what a row or a column of an edge costs in any case is its node's, so that an edge whose
    cost is a sum of both ends' is gone.
    """
    cost_s = [costs.astype(np.float64) for costs in problem.cost_s]
    merged: dict[tuple[int, int], Floats] = {}
    for edge in problem.edges:
        flip = edge.source > edge.target
        key = (edge.target, edge.source) if flip else (edge.source, edge.target)
        matrix = edge.cost_s.T if flip else edge.cost_s
        merged[key] = merged[key] + matrix if key in merged else matrix.astype(np.float64)
    edges = []
    for (source, target), matrix in merged.items():
        rows = matrix.min(axis=1)
        rest = matrix - np.where(np.isfinite(rows), rows, 0)[:, None]
        columns = rest.min(axis=0)
        rest = rest - np.where(np.isfinite(columns), columns, 0)[None, :]
        cost_s[source] = cost_s[source] + rows
        cost_s[target] = cost_s[target] + columns
        scale = max(float(np.abs(matrix[np.isfinite(matrix)]).max(initial=0.0)), 1e-300)
        possible = np.isfinite(cost_s[source])[:, None] & np.isfinite(cost_s[target])[None, :]
        if (rest[possible] > _ROUNDING * scale).any():
            edges.append(Edge(source=source, target=target, cost_s=np.where(possible, rest, np.inf)))
    return cost_s, edges
