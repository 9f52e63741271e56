"""Samples tokens from logits."""

import torch
from torch import Tensor

from headway.kernels.cuda import operators
from headway.kernels.operands import check_matrix, check_vector, reject

MAX_VOCAB_SIZE = 1 << 20  # whose weights fit into one sum: csrc/cuda/sample.cu


def sample_tokens(
    logits: Tensor,
    *,
    seeds: Tensor,
    positions: Tensor,
    temperatures: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
) -> Tensor:
    """Samples one token a row: the best, or one drawn from what min-p, top-k and top-p, in this order, leave.

    A draw depends on the row's logits, seed and position alone. A row is not sorted: a threshold is looked for instead,
    and tokens that tie with the last one kept stay too. A row without a finite best logit weighs all tokens alike.

    Args:
        logits: [rows, vocab_size] float32, rows contiguous; at most 2^20 columns.
        seeds, positions: [rows] int64; the same pair draws the same number in any batch.
        temperatures: [rows] float32; 0: the best token, the first of equals.
        top_k: [rows] int64, how many tokens stay; 0: all.
        top_p: [rows] float64, the share of the mass that stays; 1: all.
        min_p: [rows] float32, the lowest probability that stays, as a share of the best token's; 0: all.

    Returns:
        [rows] int64.

    Raises:
        ValueError: an operand has another shape, dtype, layout or device.
    """
    num_rows, vocab_size = check_matrix("logits", logits, dtypes=frozenset({torch.float32}))
    if not 0 < vocab_size <= MAX_VOCAB_SIZE:
        reject("logits", logits, f"of 1 to {MAX_VOCAB_SIZE} columns")
    for name, column, dtype in (
        ("seeds", seeds, torch.int64),
        ("positions", positions, torch.int64),
        ("temperatures", temperatures, torch.float32),
        ("top_k", top_k, torch.int64),
        ("top_p", top_p, torch.float64),
        ("min_p", min_p, torch.float32),
    ):
        check_vector(name, column, num_rows, dtype=dtype, like=logits)
    out = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    operators.sample_tokens(logits, seeds, positions, temperatures, top_k, top_p, min_p, out)
    return out
