"""Eliminated nodes beside all choices there are, where some nodes stay."""

from itertools import product

import numpy as np
import pytest

from headway.planner.intra.elimination import eliminate
from headway.planner.intra.problem import Edge, Floats

_NUM_NODES, _NUM_OBJECTIVES = 5, 2


def _random(seed: int) -> tuple[list[Floats], list[Edge]]:
    """Edges go either way, some pairs have two, and some choices exclude each other."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 5, _NUM_NODES)
    costs = [random.random((size, _NUM_OBJECTIVES)) for size in sizes]
    edges = []
    for source, target in random.integers(0, _NUM_NODES, (7, 2)):
        if source != target:
            cost_s = random.random((sizes[source], sizes[target]))
            cost_s[random.random(cost_s.shape) < 0.1] = np.inf
            edges.append(Edge(source=int(source), target=int(target), cost_s=cost_s))
    return costs, edges


@pytest.mark.parametrize("keep", [(), (3,), (0, 4)])
@pytest.mark.parametrize("seed", range(20))
def test_equals_the_best_of_all_choices(seed: int, keep: tuple[int, ...]) -> None:
    costs, edges = _random(seed)
    found = eliminate(costs, edges, keep=keep)
    assert found is not None
    sizes = [len(each) for each in costs]
    best = np.full((*(sizes[node] for node in keep), _NUM_OBJECTIVES), np.inf)
    objective: dict[tuple[int, ...], Floats] = {}
    for choice in product(*map(range, sizes)):
        own = np.sum([costs[node][k] for node, k in enumerate(choice)], axis=0)
        objective[choice] = own + sum(edge.cost_s[choice[edge.source], choice[edge.target]] for edge in edges)
        kept = tuple(choice[node] for node in keep)
        best[kept] = np.minimum(best[kept], objective[choice])
    np.testing.assert_allclose(found.cost_s, best, rtol=1e-12)
    for at in np.ndindex(best.shape):
        chosen = tuple(int(found.strategies[node][at]) for node in range(_NUM_NODES))
        assert tuple(chosen[node] for node in keep) == at[:-1]
        np.testing.assert_allclose(objective[chosen][at[-1]], best[at], rtol=1e-12)


def test_a_graph_that_is_too_wide_gives_none() -> None:
    costs = [np.zeros((200, 1)) for _ in range(4)]
    edges = [Edge(source=a, target=b, cost_s=np.ones((200, 200))) for a in range(4) for b in range(a)]
    assert eliminate(costs, edges) is None
