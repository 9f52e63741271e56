"""Root-mean-square normalisation."""

import torch
from torch import Tensor

from headway.kernels.cuda import operators
from headway.kernels.cuda.operands import ALIGNMENT_BYTES, check_rows, is_aligned
from headway.kernels.operands import check_like, check_vector, reject


def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` for each row.

    Args:
        x: [tokens, width], float32, bfloat16 or float16, rows contiguous, width a multiple of 8.
        weight: [width], the dtype of `x`.

    Returns:
        A new [tokens, width].

    Raises:
        ValueError: an operand has another shape, dtype, layout or device.
    """
    return _normalised(x, None, weight, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """`residual += x` in place; returns `rms_norm(residual, weight)`. Operands are as there, `residual` as `x`."""
    check_rows("residual", residual)
    check_like("residual", residual, x)
    return _normalised(x, residual, weight, eps)


def _normalised(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    _, width = check_rows("x", x)
    check_vector("weight", weight, width, dtype=x.dtype, like=x)
    if not is_aligned(weight):
        reject("weight", weight, f"at a multiple of {ALIGNMENT_BYTES} bytes")
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    operators.rms_norm(x, residual, weight, out, eps)
    return out
