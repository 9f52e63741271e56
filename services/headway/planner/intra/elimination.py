"""Finds the cheapest strategies where memory does not bind, by eliminating node after node. Pure.

A node is taken out by noting, for each choice of its neighbours, its best own strategy and what that costs; the note is
a table over the neighbours, which later nodes are taken out of in turn. Graphs of models are long and narrow, so these
tables stay small, and the exact optimum takes milliseconds where a linear program takes seconds. All is done for
several objectives at once: the last dim of every table.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from headway.planner.intra.problem import Edge, Floats

# A table with more entries than this costs more than a linear program.
_MOST_ENTRIES = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Costs over the strategies of some nodes: one dim for each of `nodes`, in order, then one for the objectives."""

    nodes: tuple[int, ...]
    cost_s: Floats

    def over(self, nodes: Sequence[int]) -> Floats:
        """Reshapes the table to be broadcast over all of `nodes`, which are in ascending order as a table's own are."""
        sizes = dict(zip(self.nodes, self.cost_s.shape[:-1], strict=True))
        return self.cost_s.reshape([*(sizes.get(node, 1) for node in nodes), self.cost_s.shape[-1]])


@dataclass(frozen=True, slots=True, eq=False)
class _Elimination:
    """The best strategy of an eliminated node for each choice of those that were its neighbours then."""

    node: int
    neighbours: tuple[int, ...]
    best: NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Eliminated:
    """What is left of a problem when nodes are eliminated.

    Attributes:
        cost_s: [strategies of each node that was kept, in ascending order, ..., objectives]; the least cost of all.
        strategies: of each node, in the same shape: what it does in the cheapest choice.
    """

    cost_s: Floats
    strategies: Mapping[int, NDArray[np.intp]]


def eliminate(cost_s: Sequence[Floats], edges: Sequence[Edge], *, keep: Collection[int] = ()) -> Eliminated | None:
    """Finds the choices with the least objectives of equation 3.1; None where the graph is too wide for tables.

    Args:
        cost_s: of each node, [strategies, objectives].
        edges: with the same cost in all objectives.
        keep: nodes that stay: the cheapest choice is found for each of their strategies.
    """
    num_objectives = cost_s[0].shape[1]
    tables = [_Table((node,), costs) for node, costs in enumerate(cost_s)]
    tables += [_table(edge) for edge in edges]
    touching: list[set[int]] = [set() for _ in cost_s]
    for index, table in enumerate(tables):
        for node in table.nodes:
            touching[node].add(index)
    sizes = [len(costs) for costs in cost_s]
    neighbours = [{n for i in touching[node] for n in tables[i].nodes} - {node} for node in range(len(sizes))]
    entries = [prod(sizes[n] for n in near) * sizes[node] for node, near in enumerate(neighbours)]
    left = set(range(len(sizes))) - set(keep)
    order: list[_Elimination] = []
    while left:
        node = min(left, key=entries.__getitem__)
        if entries[node] * num_objectives > _MOST_ENTRIES:
            return None
        nodes = tuple(sorted(neighbours[node] | {node}))
        joint = np.zeros([*(sizes[n] for n in nodes), num_objectives])
        for index in touching[node]:
            joint += tables[index].over(nodes)
        axis = nodes.index(node)
        near = nodes[:axis] + nodes[axis + 1 :]
        order.append(_Elimination(node, near, joint.argmin(axis=axis)))
        left.remove(node)
        _replace(tables, touching, taken=node, by=_Table(near, joint.min(axis=axis)))
        for n in near:
            neighbours[n] |= set(near)
            neighbours[n] -= {n, node}
            entries[n] = prod(sizes[other] for other in neighbours[n]) * sizes[n]
    return _answer(order, tables, touching, tuple(sorted(keep)), sizes, num_objectives)


def _answer(
    order: Sequence[_Elimination],
    tables: Sequence[_Table],
    touching: Sequence[set[int]],
    kept: tuple[int, ...],
    sizes: Sequence[int],
    num_objectives: int,
) -> Eliminated:
    """Adds up the tables that are left, and reads the choices from last to first."""
    shape = (*(sizes[node] for node in kept), num_objectives)
    cost_s = np.zeros(shape)
    for index in {i for node in kept for i in touching[node]}:
        cost_s += tables[index].over(kept)
    for table in tables[:]:
        if not table.nodes:
            cost_s += table.cost_s
    indices = np.indices(shape)
    strategies: dict[int, NDArray[np.intp]] = {node: indices[i] for i, node in enumerate(kept)}
    for step in reversed(order):
        strategies[step.node] = step.best[(*(strategies[n] for n in step.neighbours), indices[-1])]
    return Eliminated(cost_s=cost_s, strategies=strategies)


def _table(edge: Edge) -> _Table:
    if edge.source < edge.target:
        return _Table((edge.source, edge.target), edge.cost_s[..., None])
    return _Table((edge.target, edge.source), edge.cost_s.T[..., None])


def _replace(tables: list[_Table], touching: list[set[int]], *, taken: int, by: _Table) -> None:
    """Puts one table in place of all that an eliminated node had."""
    for index in touching[taken]:
        for node in tables[index].nodes:
            if node != taken:
                touching[node].discard(index)
    touching[taken].clear()
    tables.append(by)
    for node in by.nodes:
        touching[node].add(len(tables) - 1)
