"""Looks up rows of an embedding table."""

from torch import Tensor

from headway.kernels.dispatch import kernels_for
from headway.kernels.operands import check_indices, check_matrix


def embed(numbers: Tensor, table: Tensor) -> Tensor:
    """Looks up the rows `table[numbers]`.

    Args:
        numbers: [tokens], int32 or int64.
        table: [rows, width], float32 or bfloat16, rows contiguous.

    Returns:
        A new [tokens, width].

    Raises:
        ValueError: an operand has another shape, dtype or layout, or on the CPU a number is not one of a row.
    """
    check_matrix("table", table)
    check_indices("numbers", numbers, len(numbers), like=table)
    return kernels_for(table).embed(numbers, table=table)
