"""Layers of equation 3.6 beside all clusterings there are."""

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest

from headway.core.errors import InvalidArgumentError
from headway.planner.inter.clustering import DELTA, Floats, cluster


def all_clusterings(num_items: int, num_layers: int) -> list[list[tuple[int, int]]]:
    """Every way to cut a sequence into so many runs: the first and the last item of each."""
    ends = [(0, *cuts, num_items) for cuts in combinations(range(1, num_items), num_layers - 1)]
    return [[(start, end - 1) for start, end in pairwise(each)] for each in ends]


def quality(flops: Sequence[float], received: Floats, layers: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """The most that a layer receives, and the sum of squares of the layers' work: less is better, in this order."""
    work = [sum(flops[first : last + 1]) for first, last in layers]
    return max(float(received[layer]) for layer in layers), sum(each**2 for each in work)


def is_allowed(flops: Sequence[float], layers: Sequence[tuple[int, int]], limit: float) -> bool:
    return all(first == last or sum(flops[first : last + 1]) <= limit for first, last in layers)


@pytest.mark.parametrize("seed", range(60))
def test_is_the_best_of_all_clusterings(seed: int) -> None:
    random = np.random.default_rng(seed)
    num_items = int(random.integers(1, 9))
    num_layers = int(random.integers(1, num_items + 1))
    flops = random.integers(1, 9, num_items).astype(float).tolist()
    received = random.integers(0, 5, (num_items, num_items)).astype(float)
    limit = (1 + DELTA) * sum(flops) / num_layers
    ways = all_clusterings(num_items, num_layers)
    while not (allowed := [layers for layers in ways if is_allowed(flops, layers, limit)]):
        limit *= 1 + DELTA
    found = cluster(flops, received, num_layers=num_layers)
    assert found in allowed
    assert quality(flops, received, found) == min(quality(flops, received, layers) for layers in allowed)


@pytest.mark.parametrize("num_layers", [0, 4])
def test_says_how_many_layers_there_can_be(num_layers: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"3 operators cannot make {num_layers} layers") as raised:
        cluster([1.0, 1.0, 1.0], np.zeros((3, 3)), num_layers=num_layers)
    assert raised.value.hint == "Give 1 to 3."
