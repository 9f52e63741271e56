"""How a linear layer multiplies: chosen once, when its weight is loaded, by where it lies and in which type."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn import functional

from headway import kernels


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
    return KernelProduct(weight, epilogue) if weight.is_cpu else TorchProduct(weight, epilogue)


class KernelProduct:
    """Headway's own kernel, on the CPU.

    Against oneDNN on a Zen 4 core, in float32 42 to 31 GFLOP/s at 1 row, 75 to 53 at 8, the same from 64 rows on; in
    bfloat16 27 to 17, 147 to 122, and 210 to 194. It has nothing to compile for a new number of rows, a row's result
    does not depend on its batch, and it goes on where another process has one of the cores.
    """

    def __init__(self, weight: Tensor, epilogue: Epilogue, *, scales: Tensor | None = None) -> None:
        self._packed = kernels.pack_linear(weight, scales=scales, is_gated=epilogue.is_gated)
        self._bias = None if epilogue.bias is None else epilogue.bias.float()
        self._activation = epilogue.activation

    def __call__(self, x: Tensor, residual: Tensor | None) -> Tensor:
        return kernels.linear(x, self._packed, bias=self._bias, activation=self._activation, residual=residual)


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
