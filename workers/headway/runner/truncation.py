"""Truncates a distribution by min-p, top-k and top-p: each gives the lowest weight that stays.

A threshold says the same whatever order equal weights are sorted in, so a row is cut the same way in every batch.
Tokens that tie with the last one kept stay too.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.request import SamplingParams

# Bits of a float32 below the exponent and the first four of the fraction: 16 bins to each power of two.
_BIN_SHIFT = 19


def truncate(weights: Tensor, params: list[SamplingParams], *, vocab_size: int) -> None:
    """Sets the weights of tokens that do not stay to 0, in place.

    min_p cuts first, then top_k, then top_p: each looks at what the one before has left.

    Args:
        weights: float32 [R, W] as from `token_weights`: the best token of a row has weight 1.
        params: one per row.
    """
    rows = [row for row, p in enumerate(params) if p.min_p > 0 or 0 < p.top_k < vocab_size or p.top_p < 1]
    if not rows:
        return
    lowest = weights.new_tensor([p.min_p for p in params])
    top_k_rows = [row for row in rows if 0 < params[row].top_k < vocab_size]
    if top_k_rows:
        bounds = _top_k(weights[top_k_rows], [params[row].top_k for row in top_k_rows])
        lowest[top_k_rows] = torch.maximum(lowest[top_k_rows], bounds)
    for row in rows:
        if params[row].top_p < 1:
            lowest[row] = _nucleus(weights[row].cpu().numpy(), params[row].top_p, lowest=lowest[row].item())
    if len(rows) == len(weights):
        weights.masked_fill_(weights < lowest[:, None], 0)
    else:
        kept = weights[rows]
        weights[rows] = kept.masked_fill_(kept < lowest[rows, None], 0)


def _top_k(weights: Tensor, counts: list[int]) -> Tensor:
    """The k-th largest weight of each row."""
    best = weights.topk(max(counts), dim=1).values
    return best.gather(1, torch.tensor(counts, device=weights.device)[:, None] - 1)[:, 0]


def _nucleus(weights: NDArray[np.float32], top_p: float, *, lowest: float) -> float:
    """The last weight of the smallest set that has `top_p` of the mass, among the weights from `lowest` on."""
    if lowest > 0:
        weights = weights[weights >= lowest]
    mass = weights.sum(dtype=np.float64)
    # All weights below this have less than 1 - top_p of the mass together: the nucleus lies above.
    candidates = weights[weights >= mass * (1 - top_p) / len(weights)]
    # Instead of a sort: bins of like weights, of which only the one that the nucleus ends in is sorted. The bits of a
    # positive float grow with its value.
    bins = (candidates.view(np.uint32) >> np.uint32(_BIN_SHIFT)).astype(np.intp)
    masses = np.bincount(bins, weights=candidates)[::-1]
    reached = np.cumsum(masses)
    wanted = min(top_p * mass, reached[-1])
    last_bin = int(np.searchsorted(reached, wanted))
    inside = np.sort(candidates[bins == len(masses) - 1 - last_bin])[::-1]
    reached_inside = reached[last_bin] - masses[last_bin] + np.cumsum(inside, dtype=np.float64)
    # Rounding may leave the sum just below what is wanted: then the whole bin stays.
    return float(inside[min(int(np.searchsorted(reached_inside, wanted)), len(inside) - 1)])
