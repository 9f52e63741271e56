"""Rounding of weights to 8 bits."""

import torch
from torch import Tensor

_LARGEST = 127
_PART_SIZE = 1 << 20  # elements that are rounded at a time: what that takes besides stays small for any matrix


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds each row of a weight to whole multiples of its largest magnitude / 127.

    Args:
        weight: [out_features, in_features] of any float dtype, on any device.

    Returns:
        Rows, int8 of the same shape, and scales, [out_features] float32: `weight` is about `rows * scales[:, None]`.
    """
    rows = torch.empty_like(weight, dtype=torch.int8, memory_format=torch.contiguous_format)
    scales = torch.empty(len(weight), dtype=torch.float32, device=weight.device)
    num_rows = max(1, _PART_SIZE // max(1, weight.shape[1]))
    for part, part_rows, part_scales in zip(*(torch.split(x, num_rows) for x in (weight, rows, scales)), strict=True):
        wide = part.float()
        torch.div(wide.abs().amax(dim=1), _LARGEST, out=part_scales)
        steps = part_scales.clamp_min(torch.finfo(torch.float32).tiny)  # a row of zeros stays one
        part_rows.copy_((wide / steps[:, None]).round_())
    return rows, scales
