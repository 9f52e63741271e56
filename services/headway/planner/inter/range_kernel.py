"""The step from a run of layers to one that is a layer longer, compiled."""

import numpy as np
from numba import njit

from headway.planner.intra.quantities import Floats


@njit(cache=True, nogil=True)
def follow(
    objective: Floats, quantities: Floats, next_objective: Floats, next_quantities: Floats
) -> tuple[Floats, Floats]:
    """A product of matrices in which sums are minima, at every price.

    Args:
        objective: [middle, prices]; of the run, for each way that its last tensors lie.
        quantities: [quantities, middle, prices]; of the same.
        next_objective: [middle, leaving, prices]; of the layer that follows.
        next_quantities: [quantities, middle, leaving, prices]; of the same.

    Returns:
        [leaving, prices] and [quantities, leaving, prices] of the longer run at its cheapest.
    """
    num_middle, num_leaving, num_prices = next_objective.shape
    num_quantities = quantities.shape[0]
    best = np.empty((num_leaving, num_prices))
    total = np.empty((num_quantities, num_leaving, num_prices))
    for leaving in range(num_leaving):
        for price in range(num_prices):
            least, at = np.inf, 0
            for middle in range(num_middle):
                both = objective[middle, price] + next_objective[middle, leaving, price]
                if both < least:
                    least, at = both, middle
            best[leaving, price] = least
            for quantity in range(num_quantities):
                own = next_quantities[quantity, at, leaving, price]
                total[quantity, leaving, price] = quantities[quantity, at, price] + own
    return best, total
