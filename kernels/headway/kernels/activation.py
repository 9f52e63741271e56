"""Activations of feed-forward layers."""

from torch import Tensor

from headway.kernels.dispatch import kernels_for
from headway.kernels.operands import check_matrix


def silu_mul(gate_up: Tensor) -> Tensor:
    """`silu(gate) * up`, where each row holds the gate, then up.

    Args:
        gate_up: [tokens, 2 * width], float32 or bfloat16, rows contiguous.

    Returns:
        A new [tokens, width].

    Raises:
        ValueError: the operand has another shape, dtype or layout.
    """
    _, double_width = check_matrix("gate_up", gate_up)
    if double_width % 2:
        raise ValueError(f"gate_up must have an even number of columns; it has {double_width}")
    return kernels_for(gate_up).silu_mul(gate_up)
