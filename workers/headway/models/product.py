"""How a linear layer multiplies: chosen once, when its weight is loaded, by where it lies and in which type."""

import os
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from headway import kernels

# What PyTorch's own compiler emits for packed weights; these have no public name.
_linear_pointwise = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
_reorder_weight = torch.ops.mkldnn._reorder_linear_weight  # noqa: SLF001
_has_bfloat16 = torch.ops.mkldnn._is_mkldnn_bf16_supported  # noqa: SLF001

# Any hint above 8 rows gives the layout that is fastest at every row count from 1 to 1024.
_PACKING_ROWS_HINT = 64

# Our activation -> oneDNN's post-operation (name, algorithm), applied while the output is still in registers.
_POST_OPERATIONS = {
    "none": ("none", ""),
    "relu": ("relu", ""),
    "silu": ("swish", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
}


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What follows `y = x @ weight.T`: `activation(y + bias)`, or `silu(gate) * value` with the halves of y + bias."""

    bias: Tensor | None
    activation: str
    is_gated: bool

    def finish(self, out: Tensor, residual: Tensor | None) -> Tensor:
        """The rest of it, with PyTorch's own functions, once the bias is added."""
        if self.is_gated:
            return kernels.silu_mul(out)
        out = _activate(out, self.activation)
        return out if residual is None else out.add_(residual)


class Product(Protocol):
    """Holds a weight in a layout of its own."""

    def __call__(self, x: Tensor, residual: Tensor | None) -> Tensor:
        """x [T, in] -> a new [T, out], the residual [T, out] added if there is one."""


def bind_product(weight: Tensor, epilogue: Epilogue, *, quantization: str | None = None) -> Product:
    """The fastest product for the weight, which may be freed afterwards unless it is shared.

    Args:
        quantization: 'int8' rounds the weight, None keeps it as it is.
    """
    if quantization is not None:
        rows, scales = kernels.quantize(weight)
        return (KernelProduct if weight.is_cpu else QuantizedProduct)(rows, epilogue, scales=scales)
    if weight.is_cpu:
        if weight.dtype == torch.float32:
            return KernelProduct(weight, epilogue)
        if weight.dtype == torch.bfloat16 and _has_bfloat16():
            return OneDnnProduct(weight, epilogue)
    return TorchProduct(weight, epilogue)


class KernelProduct:
    """Headway's own kernel, for weights in float32 and int8 on the CPU. It computes in float32.

    Against oneDNN on a Zen 4 core: 42 to 31 GFLOP/s at 1 row, 75 to 53 at 8, the same from 64 rows on. It has nothing
    to compile for a new number of rows, and a row's result does not depend on its batch.
    """

    def __init__(self, weight: Tensor, epilogue: Epilogue, *, scales: Tensor | None = None) -> None:
        self._packed = kernels.pack_linear(weight, scales=scales, is_gated=epilogue.is_gated)
        self._bias = None if epilogue.bias is None else epilogue.bias.float()
        self._activation = epilogue.activation

    def __call__(self, x: Tensor, residual: Tensor | None) -> Tensor:
        wide_residual = None if residual is None else residual.float()
        out = kernels.linear(
            x.float(), self._packed, bias=self._bias, activation=self._activation, residual=wide_residual
        )
        return out.to(x.dtype)


class OneDnnProduct:
    """oneDNN with a packed weight, for bfloat16 on the CPU: 400 GFLOP/s at 64 rows on two Zen 4 cores, unpacked 310."""

    def __init__(self, weight: Tensor, epilogue: Epilogue) -> None:
        _limit_primitive_cache()
        self._weight = _reorder_weight(weight, _PACKING_ROWS_HINT)
        self._bias = epilogue.bias
        self._is_gated = epilogue.is_gated
        self._name, self._algorithm = _POST_OPERATIONS["none" if epilogue.is_gated else epilogue.activation]

    def __call__(self, x: Tensor, residual: Tensor | None) -> Tensor:
        if residual is not None:
            assert self._name == "none"
            return _linear_pointwise.binary(x, residual, self._weight, self._bias, "add")  # type: ignore[no-any-return]
        out: Tensor = _linear_pointwise.default(x, self._weight, self._bias, self._name, [], self._algorithm)
        return kernels.silu_mul(out) if self._is_gated else out


class TorchProduct:
    """PyTorch's, on any device and in any type."""

    def __init__(self, weight: Tensor, epilogue: Epilogue) -> None:
        self._weight = weight
        self._epilogue = epilogue

    def __call__(self, x: Tensor, residual: Tensor | None) -> Tensor:
        return self._epilogue.finish(functional.linear(x, self._weight, self._epilogue.bias), residual)


class QuantizedProduct:
    """PyTorch's with weights in int8, on a GPU: they take half the memory of 16-bit ones, not less time.

    A layer's weights are widened for its product and dropped after it; every int8 is exact in bfloat16 and float16.
    """

    def __init__(self, weight: Tensor, epilogue: Epilogue, *, scales: Tensor) -> None:
        self._weight = weight
        self._scales = scales
        self._epilogue = epilogue

    def __call__(self, x: Tensor, residual: Tensor | None) -> Tensor:
        out = functional.linear(x, self._weight.to(x.dtype)) * self._scales
        if self._epilogue.bias is not None:
            out += self._epilogue.bias
        return self._epilogue.finish(out.to(x.dtype), residual)


def _activate(x: Tensor, activation: str) -> Tensor:
    match activation:
        case "none":
            return x
        case "relu":
            return x.relu_()
        case "silu":
            return functional.silu(x, inplace=True)
        case "gelu":
            return functional.gelu(x)
        case _:
            return functional.gelu(x, approximate="tanh")


def _limit_primitive_cache() -> None:
    """Bounds oneDNN's cache of compiled products; takes effect before the first one.

    There is one entry for each pair of weight shape and row count, of about 0.55 MB, and 1024 of them by default. A
    miss costs 0.3 ms or more. The second variable is the cache of PyTorch's own binding, which keeps entries alive.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "16")
