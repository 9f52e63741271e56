"""Leaves out options of nodes that no cheapest choice needs, so that graphs that are wide fit into tables. Pure."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from headway.planner.intra.problem import Edge, Floats

Options = NDArray[np.intp]
"""Options of a node that are left, ascending."""

_PASSES = 3


def undominated(cost_s: Sequence[Floats], edges: Sequence[Edge], *, keep: Collection[int]) -> list[Options]:
    """The options of each node without those that another one replaces at no higher cost, whatever its neighbours do
    and for every objective (dead-end elimination). The cheapest choices that are left cost what they did.

    Args:
        cost_s: of each node, [options, objectives].
        keep: nodes whose options all stay.
    """
    left: list[Options] = [np.arange(len(costs)) for costs in cost_s]
    touching = _touching(len(cost_s), edges)
    for _ in range(_PASSES):
        before = sum(map(len, left))
        for node, costs in enumerate(cost_s):
            if node not in keep and len(left[node]) > 1:
                own = costs[left[node]]
                worse = _most_worse(own)
                for other, matrix in touching[node]:
                    worse += _most_worse(matrix[np.ix_(left[node], left[other])])
                left[node] = left[node][_needed(worse, float(np.abs(own[np.isfinite(own)]).max(initial=0.0)))]
        if sum(map(len, left)) == before:
            break
    return left


def cheapest(
    cost_s: Sequence[Floats], edges: Sequence[Edge], left: Sequence[Options], *, most: int, keep: Collection[int]
) -> list[Options]:
    """At most so many options of each node: those that cost least by themselves, with the best of all neighbours."""
    touching = _touching(len(cost_s), edges)
    found = []
    for node, options in enumerate(left):
        least = cost_s[node][options]
        for other, matrix in touching[node]:
            least = least + matrix[np.ix_(options, left[other])].min(axis=1)[:, None]
        rank = least.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable").min(axis=1)
        best = options[np.sort(rank.argsort(kind="stable")[:most])]
        found.append(options if node in keep else best)
    return found


def restricted(edges: Sequence[Edge], left: Sequence[Options]) -> list[Edge]:
    """The edges between the options that are left."""
    return [
        Edge(source=edge.source, target=edge.target, cost_s=edge.cost_s[np.ix_(left[edge.source], left[edge.target])])
        for edge in edges
    ]


def _touching(num_nodes: int, edges: Sequence[Edge]) -> list[list[tuple[int, Floats]]]:
    """Of each node its neighbours, with costs as [own options, the neighbour's]."""
    found: list[list[tuple[int, Floats]]] = [[] for _ in range(num_nodes)]
    for edge in edges:
        found[edge.source].append((edge.target, edge.cost_s))
        found[edge.target].append((edge.source, edge.cost_s.T))
    return found


def _most_worse(costs: Floats) -> Floats:
    """[options, options]: the most that each costs more than each other one, over all columns."""
    with np.errstate(invalid="ignore"):
        worse = costs[:, None] - costs[None]
    return np.asarray(np.where(np.isnan(worse), 0.0, worse).max(axis=2))


def _needed(worse: Floats, scale: float) -> NDArray[np.bool_]:
    """Which options are left when each is taken out that another one that is left replaces."""
    replaces = worse <= 1e-12 * scale
    np.fill_diagonal(replaces, val=False)
    left = np.ones(len(worse), bool)
    for option in range(len(worse)):
        left[option] = not (replaces[:, option] & left).any()
    return left
