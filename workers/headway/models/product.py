"""The matrix products of linear layers. One is chosen when the weight is loaded, by its device and dtype."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from headway import kernels


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The operation that follows `y = x @ weight.T`: `activation(y + bias)`, or `silu(gate) * value` with the halves of
    y + bias.
    """

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
    """A matrix product that holds its weight in a layout of its own."""

    def __call__(self, x: Tensor, residual: Tensor | None) -> Tensor:
        """x [T, in] -> a new [T, out], the residual [T, out] added if there is one."""

    def largest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the largest entry of each row of `self(x, None)`, float32 [T], and the first place where it is, int64
        [T].
        """


def bind_product(
    weight: Tensor, epilogue: Epilogue, *, quantization: str | None = None, is_searched: bool = False
) -> Product:
    """The fastest product for the weight, which may be freed afterwards unless it is shared.

    Args:
        quantization: 'int8' rounds the weight, None keeps it as it is.
        is_searched: whether `largest` is worth memory of its own.
    """
    if quantization is not None:
        rows, scales = kernels.quantize(weight)
        if weight.is_cpu:
            return KernelProduct(rows, epilogue, scales=scales, is_searched=is_searched)
        return QuantizedProduct(rows, epilogue, scales=scales)
    if weight.is_cpu:
        return KernelProduct(weight, epilogue, is_searched=is_searched)
    return TorchProduct(weight, epilogue)


class KernelProduct:
    """Headway's own product kernel, on the CPU.

    Against oneDNN on a Zen 4 core, in float32 42 to 31 GFLOP/s at 1 row, 75 to 53 at 8, the same from 64 rows on; in
    bfloat16 27 to 17, 147 to 122, and 210 to 194. It has nothing to compile for a new number of rows, a row's result
    does not depend on its batch, and it goes on where another process has one of the cores.
    """

    def __init__(
        self, weight: Tensor, epilogue: Epilogue, *, scales: Tensor | None = None, is_searched: bool = False
    ) -> None:
        self._packed = kernels.pack_linear(weight, scales=scales, is_gated=epilogue.is_gated)
        self._bias = None if epilogue.bias is None else epilogue.bias.float()
        self._activation = epilogue.activation
        self._sketch = kernels.sketch_linear(weight, scales=scales) if is_searched else None

    def __call__(self, x: Tensor, residual: Tensor | None) -> Tensor:
        return kernels.linear(x, self._packed, bias=self._bias, activation=self._activation, residual=residual)

    def largest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Finds the largest entries. With a sketch of the weight most products are left out; the result is the same to
        the bit.
        """
        assert self._bias is None, "outputs are searched as they are"
        assert self._activation == "none", "outputs are searched as they are"
        return kernels.find_largest(x, self._packed, self._sketch)


class TorchProduct:
    """PyTorch's product, on any device and in any type."""

    def __init__(self, weight: Tensor, epilogue: Epilogue) -> None:
        self._weight = weight
        self._epilogue = epilogue

    def __call__(self, x: Tensor, residual: Tensor | None) -> Tensor:
        return self._epilogue.finish(functional.linear(x, self._weight, self._epilogue.bias), residual)

    def largest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return _largest(self(x, None))


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

    def largest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return _largest(self(x, None))


def row_argmax(out: Tensor) -> Tensor:
    """float32 [T, N] -> int64 [T], where each row's largest entry is, the first of equals.

    On the CPU it is NumPy's, which is vectorised and five times as fast as PyTorch's.
    """
    return torch.from_numpy(out.numpy().argmax(axis=1)) if out.is_cpu else out.argmax(1)


def _largest(out: Tensor) -> tuple[Tensor, Tensor]:
    out = out.float()
    places = row_argmax(out)
    return out.gather(1, places[:, None])[:, 0], places


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
