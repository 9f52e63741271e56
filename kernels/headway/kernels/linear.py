"""Linear layers on the CPU, over weights that are packed once: in float32, bfloat16 or int8."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.kernels.cpu import default_kernels
from headway.kernels.operands import check_matrix, check_vector

DTYPES = frozenset({torch.float32, torch.bfloat16})
ACTIVATIONS = frozenset({"none", "relu", "silu", "gelu", "gelu_tanh"})


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A weight in the layout of this process's kernels; `pack_linear` makes it.

    Attributes:
        panels: the weights, in an order that a product streams through once.
        scales: [out_features] float32 that the products with weights in int8 are multiplied by; None for others.
        is_gated: whether the first half of the output features gates the second.
    """

    panels: Tensor
    scales: Tensor | None
    in_features: int
    out_features: int
    is_gated: bool


def pack_linear(weight: Tensor, *, scales: Tensor | None = None, is_gated: bool = False) -> PackedLinear:
    """Packs a weight; the original is not needed any more.

    Args:
        weight: [out_features, in_features] on the CPU, rows contiguous; int8 if there are scales, else float32 or
            bfloat16.
        scales: [out_features] float32, one for each row of the weight; `quantize` makes both.
        is_gated: the rows hold the gates, then as many features that they gate.

    Raises:
        ValueError: the weight has another shape, dtype, layout or device.
    """
    dtypes = DTYPES if scales is None else frozenset({torch.int8})
    out_features, in_features = check_matrix("weight", weight, dtypes=dtypes)
    if not weight.is_cpu:
        raise ValueError(f"weight must be on the CPU; it is on {weight.device}")
    if scales is not None:
        check_vector("scales", scales, out_features, dtype=torch.float32, like=weight)
    if is_gated and out_features % 2:
        raise ValueError(f"weight must have an even number of rows to be gated; it has {out_features}")
    panels = default_kernels().pack_linear(weight, is_gated=is_gated)
    return PackedLinear(panels, scales, in_features, out_features, is_gated)


def linear(
    x: Tensor,
    layer: PackedLinear,
    *,
    bias: Tensor | None = None,
    activation: str = "none",
    residual: Tensor | None = None,
) -> Tensor:
    """`activation(y) + residual` with `y = scales * (x @ weight.T) + bias`.

    Gated it is `activation(gate) * value`, the halves of y.

    Sums are float32. A row's result does not depend on the rows beside it, bit for bit, nor on the number of threads.

    Args:
        x: [tokens, in_features], rows contiguous; of the weight's type, or if that is int8 float32 or bfloat16.
        bias: [out_features] float32.
        activation: one of `ACTIVATIONS`.
        residual: as the result, rows contiguous; not with a gated layer.

    Returns:
        A new [tokens, out_features] of x's type, half as wide if gated.

    Raises:
        ValueError: an operand has another shape, dtype, layout or device, or the activation is not known.
    """
    num_rows, width = check_matrix(
        "x", x, dtypes=DTYPES if layer.scales is not None else frozenset({layer.panels.dtype})
    )
    if width != layer.in_features or not x.is_cpu:
        raise ValueError(f"x must be [tokens, {layer.in_features}] on the CPU; it is {list(x.shape)} on {x.device}")
    if bias is not None:
        check_vector("bias", bias, layer.out_features, dtype=torch.float32, like=x)
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(sorted(ACTIVATIONS))}; it is {activation!r}")
    if residual is not None:
        check_matrix("residual", residual, dtypes=frozenset({x.dtype}))
        if layer.is_gated or residual.shape != (num_rows, layer.out_features):
            raise ValueError(f"residual must be [{num_rows}, {layer.out_features}], of a layer without gate")
    return default_kernels().linear(
        x,
        panels=layer.panels,
        scales=layer.scales,
        out_features=layer.out_features,
        is_gated=layer.is_gated,
        bias=bias,
        activation=activation,
        residual=residual,
    )
