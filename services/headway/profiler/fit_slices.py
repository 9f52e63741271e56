"""Fits TeraPipe's t_ctx(i, j) = a0 + a1 i + a2 j + a3 i j (equation 2.9) to a table of slices. Pure."""

import numpy as np
from numpy.typing import NDArray

from headway.core.slice_latency import ContextFit
from headway.core.slice_profile import SliceTable

_NUM_TERMS = 4
_SEED = 42

Array = NDArray[np.float64]


def fit_context(
    table: SliceTable, seconds: tuple[float, ...], *, fitted_share: float = 0.5, seed: int = _SEED
) -> ContextFit | None:
    """Least squares over `fitted_share` of the slices with context, drawn by `seed`; the others tell the error.

    Args:
        seconds: a column of the table.

    Returns:
        None where the table has too few slices with context, or too much alike, to tell the four terms apart.

    Raises:
        KeyError: the table lacks the slice without context of one that it has with.
    """
    alone = table.without_context(seconds)
    rows = [
        (*shape, value, value - alone[shape[0]][shape[1]])
        for shape, value in zip(table.shapes(), seconds, strict=True)
        if shape[2] > 0
    ]
    num_fitted = int(fitted_share * len(rows))
    if num_fitted < _NUM_TERMS or num_fitted == len(rows):
        return None
    batch, slices, context, total_s, overhead_s = np.array(rows, np.float64).T
    features = np.stack([np.ones(len(rows)), batch * slices, batch * context, batch * slices * context], axis=1)
    order = np.random.default_rng(seed).permutation(len(rows))
    fitted, held_out = order[:num_fitted], order[num_fitted:]
    scale = np.linalg.norm(features[fitted], axis=0)
    solution, _, rank, _ = np.linalg.lstsq(features[fitted] / scale, overhead_s[fitted], rcond=None)
    if rank < _NUM_TERMS:
        return None
    residual_s = np.abs(features[held_out] @ (solution / scale) - overhead_s[held_out])
    errors = residual_s / total_s[held_out]
    a0, a1, a2, a3 = (solution / scale).tolist()
    return ContextFit(
        a0=a0,
        a1=a1,
        a2=a2,
        a3=a3,
        relative_error=float(np.median(errors)),
        max_relative_error=float(errors.max()),
        overhead_error=_median_share(residual_s, overhead_s[held_out]),
        num_fitted=num_fitted,
        num_held_out=len(held_out),
    )


def _median_share(residual_s: Array, overhead_s: Array) -> float:
    """Of slices to which the context adds something."""
    counts = overhead_s > 0
    return float(np.median(residual_s[counts] / overhead_s[counts])) if counts.any() else 0.0
