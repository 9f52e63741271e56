"""Merges partial attention of several devices."""

import torch
from torch import Tensor

from headway.kernels.cuda import operators
from headway.kernels.cuda.operands import QUERIES
from headway.kernels.operands import check_partials, check_result, check_result_heads


def merge_partials(
    partials: Tensor, *, dtype: torch.dtype, out: Tensor | None = None, lse: Tensor | None = None
) -> Tensor:
    """Attention over all keys, from the attention over each shard's.

    Args:
        partials: [shards, rows, heads, head_dim + 1] float32, rows contiguous: what `decode_attention` wrote to `out`
            over a shard's keys, then to `lse`, packed so that one exchange moves both. Of a row with an lse of -inf
            nothing else is read; where all are, the result is zeros.
        dtype: of the result, float32, bfloat16 or float16.
        out: where to write, [rows, heads, head_dim] of `dtype`; rows and heads may be strided. A new tensor if None.
        lse: where to write the logarithm of the whole sum, [rows, heads] float32, may be strided.

    Returns:
        `out`: the shards' results, weighted by exp(lse).

    Raises:
        ValueError: an operand has another shape, dtype, layout or device.
    """
    shape = check_partials("partials", partials)
    if dtype not in QUERIES:
        raise ValueError(f"dtype must be float32, bfloat16 or float16; it is {dtype}")
    if out is None:
        out = torch.empty(shape, dtype=dtype, device=partials.device)
    else:
        check_result_heads("out", out, dtype=dtype, shape=shape, like=partials)
    if lse is not None:
        check_result("lse", lse, dtype=torch.float32, shape=shape[:2], like=partials)
    operators.merge_partials(partials, None, out, lse)
    return out
