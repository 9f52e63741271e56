"""Clusters operators into layers that pipelines may cut between (dissertation section 3.5.3, equation 3.6). Pure."""

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError

Floats = NDArray[np.float64]

DELTA = 0.5


def cluster(
    flops: Sequence[float], received_bytes: Floats, *, num_layers: int, delta: float = DELTA
) -> list[tuple[int, int]]:
    """Clusters a sequence of items into layers, so that the most that a layer receives is least.

    A layer has at most (1 + delta) of its equal share of the work, unless it is one item. Of equally good clusterings
    the one is taken whose layers are most alike: whose work has the least variance.

    Args:
        flops: of each item.
        received_bytes: [items, items]; entry [i, k] is what the items i to k read of what earlier ones make.

    Returns:
        The first and the last item of each layer.

    Raises:
        InvalidArgumentError: more layers than items, or none.
    """
    num_items = len(flops)
    if not 1 <= num_layers <= num_items:
        raise InvalidArgumentError(
            f"{num_items} operators cannot make {num_layers} layers.", hint=f"Give 1 to {num_items}.", field="layers"
        )
    work = np.asarray(flops, dtype=np.float64)
    limit = (1 + delta) * work.sum() / num_layers
    until = np.concatenate(([0.0], np.cumsum(work)))
    while True:
        least = _least_received(until, received_bytes, num_layers, limit)
        if np.isfinite(least):
            break
        limit *= 1 + delta  # a few heavy items leave too little for the others
    starts = _most_alike(until, received_bytes, num_layers, limit, least)
    layers = []
    end = num_items
    for layer in range(num_layers, 0, -1):
        start = int(starts[layer, end])
        layers.append((start, end - 1))
        end = start
    return layers[::-1]


@njit(cache=True)
def _least_received(until: Floats, received: Floats, num_layers: int, limit: float) -> float:
    """G of equation 3.6: the least that the layer that receives most can receive."""
    num_items = received.shape[0]
    best = np.full((num_layers + 1, num_items + 1), np.inf)
    best[0, 0] = 0.0
    for layer in range(1, num_layers + 1):
        for end in range(layer, num_items + 1):
            for start in range(end - 1, layer - 2, -1):
                if until[end] - until[start] > limit and end - start > 1:
                    break
                most = max(best[layer - 1, start], received[start, end - 1])
                best[layer, end] = min(best[layer, end], most)
    return float(best[num_layers, num_items])


@njit(cache=True)
def _most_alike(until: Floats, received: Floats, num_layers: int, limit: float, most_bytes: float) -> NDArray[np.int64]:
    """Where the last of so many layers begins, for the least sum of squares of the layers' work."""
    num_items = received.shape[0]
    squares = np.full((num_layers + 1, num_items + 1), np.inf)
    starts = np.zeros((num_layers + 1, num_items + 1), np.int64)
    squares[0, 0] = 0.0
    for layer in range(1, num_layers + 1):
        for end in range(layer, num_items + 1):
            for start in range(end - 1, layer - 2, -1):
                work = until[end] - until[start]
                if work > limit and end - start > 1:
                    break
                if received[start, end - 1] <= most_bytes and squares[layer - 1, start] + work**2 < squares[layer, end]:
                    squares[layer, end] = squares[layer - 1, start] + work**2
                    starts[layer, end] = start
    return starts
