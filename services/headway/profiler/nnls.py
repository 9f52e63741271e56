"""Solves least squares with coefficients that are not negative."""

import numpy as np
from numpy.typing import NDArray

_TOLERANCE = 1e-10

Array = NDArray[np.float64]


def solve_nnls(matrix: Array, target: Array) -> Array:
    """Finds the x >= 0 that minimises |matrix @ x - target| (Lawson and Hanson, Solving Least Squares Problems, ch.
    23).

    Args:
        matrix: [rows, columns]; columns of any scale.
        target: [rows].
    """
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    matrix = matrix / scale
    solution = np.zeros(matrix.shape[1])
    free = np.zeros(matrix.shape[1], dtype=bool)  # columns whose coefficient may be positive
    for _ in range(3 * matrix.shape[1]):
        gradient = np.where(free, -np.inf, matrix.T @ (target - matrix @ solution))
        if gradient.max() <= _TOLERANCE:
            break
        free[gradient.argmax()] = True
        while True:
            candidate = _solve_free(matrix, target, free)
            blocking = free & (candidate <= 0)
            if not blocking.any():
                break
            step = (solution[blocking] / (solution[blocking] - candidate[blocking])).min()
            solution = solution + step * (candidate - solution)
            free &= solution > _TOLERANCE
        solution = candidate
    unscaled: Array = solution / scale
    return unscaled


def _solve_free(matrix: Array, target: Array, free: NDArray[np.bool_]) -> Array:
    candidate = np.zeros(matrix.shape[1])
    candidate[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
    return candidate
