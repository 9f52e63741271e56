"""Finds the largest output of a linear layer on the CPU, without most of its products, yet exactly."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.kernels.cpu import default_kernels
from headway.kernels.linear import DTYPES, PackedLinear
from headway.kernels.operands import check_matrix, check_vector


@dataclass(frozen=True, slots=True)
class Sketch:
    """A weight in int8, and how far products with that can be off; `sketch_linear` makes it.

    Attributes:
        codes: the codes and their bounds, int8.
        tally: [3] int64, how often it was asked, how often in vain, and whether it is asked no more.
    """

    codes: Tensor
    tally: Tensor


def sketch_linear(weight: Tensor, *, scales: Tensor | None = None) -> Sketch | None:
    """Makes the sketch of a weight, which `find_largest` looks at first.

    It takes 1 byte for each element of the weight, and 16 for each of its rows.

    Args:
        weight: [out_features, in_features] on the CPU, rows contiguous; int8 if there are scales, else float32 or
            bfloat16.
        scales: see `pack_linear`.

    Returns:
        None where the processor does not multiply bytes (AVX-512 VNNI), and for rows of more than 65,536 elements.

    Raises:
        ValueError: the weight has another shape, dtype, layout or device.
    """
    check_matrix("weight", weight, dtypes=DTYPES if scales is None else frozenset({torch.int8}))
    if not weight.is_cpu:
        raise ValueError(f"weight must be on the CPU; it is on {weight.device}")
    if scales is not None:
        check_vector("scales", scales, len(weight), dtype=torch.float32, like=weight)
    codes = default_kernels().sketch_linear(weight, scales=scales)
    return None if codes is None else Sketch(codes, torch.zeros(3, dtype=torch.int64))


def find_largest(x: Tensor, layer: PackedLinear, sketch: Sketch | None = None) -> tuple[Tensor, Tensor]:
    """The largest entry of each row of `linear(x, layer)`, and the first place where it stands; a NaN is the largest.

    The sketch bounds every output from both sides (Cauchy-Schwarz on what rounding leaves out). Those that may be the
    largest are then computed as `linear` computes them, so the result is that of the whole product, bit for bit. So
    are all outputs of rows of which the sketch rules out too little, as of one that holds zeros only.

    Args:
        x: see `linear`.
        layer: not gated.
        sketch: of the layer's weight; without one all outputs are computed.

    Returns:
        float32 [tokens] and int64 [tokens].

    Raises:
        ValueError: an operand has another shape, dtype, layout or device, or the layer is gated.
    """
    _, width = check_matrix("x", x, dtypes=DTYPES if layer.scales is not None else frozenset({layer.panels.dtype}))
    if width != layer.in_features or not x.is_cpu:
        raise ValueError(f"x must be [tokens, {layer.in_features}] on the CPU; it is {list(x.shape)} on {x.device}")
    if layer.is_gated:
        raise ValueError("layer must be without gate")
    if sketch is not None:
        num_bytes = default_kernels().sketch_bytes(in_features=width, out_features=layer.out_features)
        check_vector("sketch", sketch.codes, num_bytes, dtype=torch.int8, like=x)
    return default_kernels().find_largest(
        x,
        panels=layer.panels,
        scales=layer.scales,
        sketch=None if sketch is None else sketch.codes,
        tally=None if sketch is None else sketch.tally,
        out_features=layer.out_features,
    )
