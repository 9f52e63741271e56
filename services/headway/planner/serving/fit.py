"""Figures of fabrics from measurements. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.core.cluster import Fabric

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricFit:
    """`relative_error` is the median over the samples."""

    fabric: Fabric
    relative_error: float


def fit_fabric(samples: Sequence[tuple[int, float]]) -> FabricFit:
    """The latency and the bandwidth with the least squares of relative errors.

    Args:
        samples: (bytes that leave a rank, seconds) of collectives of two ranks.

    Raises:
        ValueError: the samples leave one of them undetermined.
    """
    sizes, seconds = np.array(samples, np.float64).T
    features = np.stack([np.ones_like(sizes), sizes], axis=1)
    solution = _solve(features, seconds, weights=1 / seconds)
    return FabricFit(
        fabric=Fabric(latency_s=float(solution[0]), bytes_per_s=1 / float(solution[1])),
        relative_error=_error(features @ solution, seconds),
    )


def _solve(features: Array, seconds: Array, *, weights: Array) -> Array:
    """Raises ValueError where a coefficient comes out at nothing or below."""
    scale = np.linalg.norm(features, axis=0)
    matrix = features / scale * weights[:, None]
    solution: Array = np.linalg.lstsq(matrix, seconds * weights, rcond=None)[0] / scale
    if np.linalg.matrix_rank(matrix) < len(scale) or solution.min() <= 0:
        raise ValueError(f"The measurements do not determine every term ({solution}); take more that differ.")
    return solution


def _error(expected: Array, measured: Array) -> float:
    return float(np.median(np.abs(expected / measured - 1)))
