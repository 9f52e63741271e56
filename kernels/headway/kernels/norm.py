"""Root-mean-square normalisation."""

from torch import Tensor

from headway.kernels.dispatch import kernels_for
from headway.kernels.operands import check_like, check_matrix, check_vector


def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` for each row.

    Args:
        x: [tokens, width], float32 or bfloat16, rows contiguous.
        weight: [width], the dtype of `x`.

    Returns:
        A new [tokens, width].

    Raises:
        ValueError: an operand has another shape, dtype, layout or device.
    """
    _, width = check_matrix("x", x)
    check_vector("weight", weight, width, dtype=x.dtype, like=x)
    return kernels_for(x).rms_norm(x, weight=weight, eps=eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """`residual += x` in place; returns `rms_norm(residual, weight)`.

    Args:
        x: [tokens, width], float32 or bfloat16, rows contiguous.
        residual: as `x`.
        weight: [width], the dtype of `x`.

    Returns:
        A new [tokens, width].

    Raises:
        ValueError: an operand has another shape, dtype, layout or device.
    """
    _, width = check_matrix("x", x)
    check_matrix("residual", residual)
    check_like("residual", residual, x)
    check_vector("weight", weight, width, dtype=x.dtype, like=x)
    return kernels_for(x).add_rms_norm(x, residual=residual, weight=weight, eps=eps)
