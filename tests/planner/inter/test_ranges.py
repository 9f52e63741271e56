"""Runs of layers beside all ways that tensors can lie between their layers."""

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
import pytest

from headway.planner.inter.ranges import LayerChoice, choose_range, range_quantities
from headway.planner.intra.layer_table import LayerTable
from headway.planner.intra.quantities import Floats, Prices, Quantity

_NUM_PRICES = 3


def _tables(seed: int) -> list[LayerTable]:
    """Five layers, of which the second and the third are equal; nothing enters the first one or leaves the last one."""
    random = np.random.default_rng(seed)
    weights = Prices(weights=random.random((_NUM_PRICES, len(Quantity))))
    middle = int(random.integers(1, 4))
    return [_table(random, weights, *ends) for ends in ((1, middle), (middle, middle), (middle, 2), (2, 1))]


def _table(random: np.random.Generator, prices: Prices, entering: int, leaving: int) -> LayerTable:
    quantities = random.random((len(Quantity), entering, leaving, _NUM_PRICES))
    objective = np.einsum("qelp,pq->elp", quantities, prices.weights)
    return LayerTable(objective=objective, quantities=quantities, options=[], zero_stages={})


def _cheapest(tables: Sequence[LayerTable], price: int) -> tuple[list[LayerChoice], Floats]:
    """The best of all ways through a run, and what it takes."""
    sizes = [tables[0].objective.shape[0], *(table.objective.shape[1] for table in tables)]
    ways = [
        [LayerChoice(entering=way[i], leaving=way[i + 1]) for i in range(len(tables))]
        for way in product(*map(range, sizes))
    ]
    best = min(ways, key=lambda way: sum(map(partial(_at, price), tables, way)))
    taken = [table.quantities[:, each.entering, each.leaving, price] for table, each in zip(tables, best, strict=True)]
    return best, np.sum(taken, axis=0)


def _at(price: int, table: LayerTable, choice: LayerChoice) -> float:
    return float(table.objective[choice.entering, choice.leaving, price])


@pytest.mark.parametrize("seed", range(20))
def test_runs_are_the_cheapest_of_all_ways(seed: int) -> None:
    first, middle, third, last = _tables(seed)
    tables = [first, middle, middle, third, last]
    found = range_quantities(tables)
    for start, end, price in product(range(5), range(5), range(_NUM_PRICES)):
        if end < start:
            assert np.isinf(found[:, start, end, price]).all()
            continue
        choices, quantities = _cheapest(tables[start : end + 1], price)
        assert choose_range(tables[start : end + 1], price) == choices
        np.testing.assert_allclose(found[:, start, end, price], quantities, rtol=1e-12)
