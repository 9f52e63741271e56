"""What every run of layers takes on one mesh, from the tables of single layers (dissertation section 3.5.2). Pure.

A run's cheapest shardings are a shortest way through its layers' tables, over how the tensors lie between two layers:
each layer adds a product of matrices in which sums are minima, for all runs that end there at once. Equal layers have
one table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.planner.intra.layer_table import LayerTable
from headway.planner.intra.quantities import Floats, Quantity

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerChoice:
    """What enters and leaves one layer of a run, by the indices of its options."""

    entering: int
    leaving: int


def range_quantities(tables: Sequence[LayerTable]) -> Floats:
    """The quantities of all runs at their cheapest: [quantities, layers, layers, prices]; [:, i, k] is of the layers i
    to k, both included. Infinite where k < i.

    Args:
        tables: of each layer, in order; one may be there several times.
    """
    num_layers, num_prices = len(tables), tables[0].objective.shape[2]
    found = np.full((len(Quantity), num_layers, num_layers, num_prices), np.inf)
    runs = _Runs(tables[0])
    for last, table in enumerate(tables):
        runs = _Runs(table) if last == 0 else runs.followed_by(table)
        found[:, : last + 1, last] = runs.cheapest()
    return found


def choose_range(tables: Sequence[LayerTable], price: int) -> list[LayerChoice]:
    """The cheapest way through a run of layers at one price."""
    first = tables[0].objective[:, :, price]
    entering_of = [first.argmin(axis=0)]
    best = first.min(axis=0)
    for table in tables[1:]:
        joint = best[:, None] + table.objective[:, :, price]
        entering_of.append(joint.argmin(axis=0))
        best = joint.min(axis=0)
    leaving = int(best.argmin())
    choices = []
    for came_from in reversed(entering_of):
        entering = int(came_from[leaving])
        choices.append(LayerChoice(entering=entering, leaving=leaving))
        leaving = entering
    return choices[::-1]


class _Runs:
    """All runs that end with the same layer, the longest first.

    Attributes:
        objective: [runs, leaving options, prices].
        quantities: [quantities, runs, leaving options, prices].
    """

    def __init__(self, table: LayerTable) -> None:
        best = table.objective.argmin(axis=0)
        self.objective = np.take_along_axis(table.objective, best[None], axis=0)
        self.quantities = np.take_along_axis(table.quantities, best[None, None], axis=1)

    def followed_by(self, table: LayerTable) -> "_Runs":
        """The same runs with one layer more, and the one that begins with it."""
        runs = _Runs(table)
        num_runs, _, num_prices = self.objective.shape
        num_leaving = table.objective.shape[1]
        objective = np.empty((num_runs, num_leaving, num_prices))
        quantities = np.empty((len(Quantity), num_runs, num_leaving, num_prices))
        for leaving in range(num_leaving):  # one at a time, as the joint table would not fit a cache
            joint = self.objective + table.objective[None, :, leaving]
            best = joint.argmin(axis=1)[:, None]
            objective[:, leaving] = np.take_along_axis(joint, best, axis=1)[:, 0]
            earlier = np.take_along_axis(self.quantities, best[None], axis=2)[:, :, 0]
            own = np.take_along_axis(table.quantities[:, None, :, leaving], best[None], axis=2)[:, :, 0]
            quantities[:, :, leaving] = earlier + own
        runs.objective = np.concatenate((objective, runs.objective))
        runs.quantities = np.concatenate((quantities, runs.quantities), axis=1)
        return runs

    def cheapest(self) -> Floats:
        """[quantities, runs, prices], whatever leaves."""
        best = self.objective.argmin(axis=1)[None, :, None]
        return np.take_along_axis(self.quantities, best, axis=2)[:, :, 0]
