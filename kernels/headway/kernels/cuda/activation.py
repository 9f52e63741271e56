"""Activations of feed-forward layers."""

from torch import Tensor

from headway.kernels.cuda import operators
from headway.kernels.cuda.operands import MAX_GRID_HEIGHT, ROW_MULTIPLE, check_rows
from headway.kernels.operands import reject

MAX_WIDTH = MAX_GRID_HEIGHT * 128 * ROW_MULTIPLE  # 128 threads a CTA: csrc/cuda/activation.cu


def silu_mul(gate_up: Tensor) -> Tensor:
    """`silu(gate) * up`, where each row holds the gate, then up.

    Args:
        gate_up: [tokens, 2 * width], float32, bfloat16 or float16, rows contiguous, width a multiple of 8.

    Returns:
        A new [tokens, width].

    Raises:
        ValueError: the operand has another shape, dtype or layout.
    """
    num_rows, double_width = check_rows("gate_up", gate_up)
    if double_width % (2 * ROW_MULTIPLE):
        reject("gate_up", gate_up, f"of a multiple of {2 * ROW_MULTIPLE} columns")
    if double_width > 2 * MAX_WIDTH:
        reject("gate_up", gate_up, f"of at most {2 * MAX_WIDTH} columns")
    out = gate_up.new_empty(num_rows, double_width // 2)
    operators.silu_mul(gate_up, out)
    return out
