"""Options that are left out are none that a cheapest choice needs."""

import numpy as np
import pytest

from headway.planner.intra.elimination import eliminate
from headway.planner.intra.problem import Edge, Floats
from headway.planner.intra.pruning import cheapest, restricted, undominated

_NUM_OBJECTIVES = 2


def _random(seed: int) -> tuple[list[Floats], list[Edge]]:
    """Costs of few different numbers, so that many options are dominated and many tie."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 6, size=5)
    costs = [random.integers(0, 9, size=(size, _NUM_OBJECTIVES)).astype(float) for size in sizes]
    pairs = [(a, b) for a in range(5) for b in range(a + 1, 5) if random.random() < 0.7]
    edges = [
        Edge(source=a, target=b, cost_s=random.integers(0, 3, size=(sizes[a], sizes[b])).astype(float))
        for a, b in pairs
    ]
    return costs, edges


def _objectives(costs: list[Floats], edges: list[Edge], keep: list[int]) -> Floats:
    found = eliminate(costs, edges, keep=keep)
    assert found is not None
    return found.cost_s


@pytest.mark.parametrize("seed", range(30))
def test_what_is_not_dominated_costs_as_little(seed: int) -> None:
    costs, edges = _random(seed)
    keep = [0, 4]
    left = undominated(costs, edges, keep=keep)
    priced = [cost_s[options] for cost_s, options in zip(costs, left, strict=True)]
    np.testing.assert_allclose(
        _objectives(priced, restricted(edges, left), keep), _objectives(costs, edges, keep), rtol=1e-12
    )


def test_dominated_options_are_found() -> None:
    lefts = [undominated(*_random(seed), keep=[0, 4]) for seed in range(30)]
    before = sum(len(costs) for seed in range(30) for costs in _random(seed)[0])
    assert sum(len(options) for left in lefts for options in left) < 0.9 * before


@pytest.mark.parametrize("seed", range(10))
def test_few_options_are_the_cheapest_by_themselves(seed: int) -> None:
    costs, edges = _random(seed)
    left = cheapest(costs, edges, [np.arange(len(each)) for each in costs], most=1, keep=[0])
    assert len(left[0]) == len(costs[0])
    for node, options in list(enumerate(left))[1:]:
        near = [e.cost_s if e.source == node else e.cost_s.T for e in edges if node in (e.source, e.target)]
        least = costs[node] + sum((matrix.min(axis=1)[:, None] for matrix in near), np.zeros((len(costs[node]), 1)))
        assert len(options) == 1
        assert (least[options[0]] == least.min(axis=0)).any()
