"""What every run of layers takes on one mesh, from the tables of single layers (dissertation section 3.5.2). Pure.

A run's cheapest shardings are a shortest way through its layers' tables, over how the tensors lie between two layers:
each layer adds a product of matrices in which sums are minima. Equal layers have one table, and runs of equal layers
are found once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.planner.inter.range_kernel import follow
from headway.planner.intra.layer_table import LayerTable
from headway.planner.intra.quantities import Floats, Quantity

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerChoice:
    """What enters and leaves one layer of a run, by the indices of its options."""

    entering: int
    leaving: int


def range_quantities(
    tables: Sequence[LayerTable], behind: Mapping[tuple[int, int], LayerTable] | None = None
) -> Floats:
    """The quantities of all runs at their cheapest: [quantities, layers, layers, prices]; [:, i, k] is of the layers i
    to k, both included. Infinite where k < i.

    Args:
        tables: of each layer, in order; one may be there several times.
        behind: the table of a layer in runs that begin with another one, by both, where it is not its own: of
            parameters that both read the state is counted once.
    """
    num_layers, num_prices = len(tables), tables[0].objective.shape[2]
    found = np.full((len(Quantity), num_layers, num_layers, num_prices), np.inf)
    others = behind or {}
    runs: dict[tuple[int, ...], _Run] = {}
    cheapest: dict[tuple[int, ...], Floats] = {}
    for first in range(num_layers):
        key: tuple[int, ...] = ()
        for last in range(first, num_layers):
            table = others.get((first, last), tables[last])
            key = (*key, id(table))
            if key not in runs:
                runs[key] = runs[key[:-1]].followed_by(table) if first < last else _Run.of(table)
                cheapest[key] = runs[key].cheapest()
            found[:, first, last] = cheapest[key]
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


class _Run:
    """A run at its cheapest, for each way that what leaves it lies.

    Attributes:
        objective: [leaving options, prices].
        quantities: [quantities, leaving options, prices].
    """

    __slots__ = ("objective", "quantities")

    def __init__(self, objective: Floats, quantities: Floats) -> None:
        self.objective = objective
        self.quantities = quantities

    @classmethod
    def of(cls, table: LayerTable) -> "_Run":
        """The run of one layer."""
        best = table.objective.argmin(axis=0)
        objective = np.take_along_axis(table.objective, best[None], axis=0)[0]
        return cls(objective, np.take_along_axis(table.quantities, best[None, None], axis=1)[:, 0])

    def followed_by(self, table: LayerTable) -> "_Run":
        return _Run(*follow(self.objective, self.quantities, table.objective, table.quantities))

    def cheapest(self) -> Floats:
        """[quantities, prices], whatever leaves."""
        at = self.objective.argmin(axis=0)
        return np.asarray(self.quantities[:, at, np.arange(at.size)])
