"""A linear layer whose weight is packed for the processor once it is loaded."""

import os
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

# What PyTorch's own compiler emits for packed weights; these have no public name.
_linear_pointwise = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
_reorder_weight = torch.ops.mkldnn._reorder_linear_weight  # noqa: SLF001
_has_bfloat16 = torch.ops.mkldnn._is_mkldnn_bf16_supported  # noqa: SLF001

# Our activation -> oneDNN's post-operation (name, algorithm), applied while the output is still in registers.
_POST_OPERATIONS = {
    "none": ("none", ""),
    "relu": ("relu", ""),
    "silu": ("swish", ""),
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
}

# Any hint above 8 rows gives the layout that is fastest at every row count from 1 to 1024.
_PACKING_ROWS_HINT = 64


class Linear:
    """`activation(x @ weight.T + bias)`.

    On the CPU `pack` turns the weight into oneDNN's blocked layout and frees the original: 215 GFLOP/s against 100 to
    160 unpacked at 64 rows on two Zen 4 cores in float32, 400 against 310 in bfloat16. Elsewhere it stays as it is.

    Args:
        weight: shared with another layer (a tied head), left unchanged by `pack`; None allocates one to be loaded.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool,
        dtype: torch.dtype,
        device: torch.device,
        activation: str = "none",
        weight: Tensor | None = None,
    ) -> None:
        self.weight = torch.empty(out_features, in_features, dtype=dtype, device=device) if weight is None else weight
        self.bias = torch.empty(out_features, dtype=dtype, device=device) if bias else None
        self._out_features = out_features
        self._activation = activation
        self._post_operation = _POST_OPERATIONS[activation]
        self._is_packed = False

    def pack(self) -> None:
        """Call once, when the weight is loaded."""
        if can_pack(self.weight):
            self.weight = _reorder_weight(self.weight, _PACKING_ROWS_HINT)
            self._is_packed = True

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, in] -> [T, out]."""
        if self._is_packed:
            name, algorithm = self._post_operation
            return _linear_pointwise.default(x, self.weight, self.bias, name, [], algorithm)  # type: ignore[no-any-return]
        return _activate(functional.linear(x, self.weight, self.bias), self._activation)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual [T, out] + x [T, in] through the layer, as a new tensor; the layer has no activation."""
        if self._is_packed:
            return _linear_pointwise.binary(x, residual, self.weight, self.bias, "add")  # type: ignore[no-any-return]
        return functional.linear(x, self.weight, self.bias).add_(residual)

    def named(self, name: str, *, transposed: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Checkpoint tensor names and the views that they fill. `transposed`: stored as [in, out]."""
        yield f"{name}.weight", self.weight.t() if transposed else self.weight
        if self.bias is not None:
            yield f"{name}.bias", self.bias

    def named_parts(self, **num_rows: int) -> Iterator[tuple[str, Tensor]]:
        """The same for a fused layer: each part's name and the number of output rows it fills, in order."""
        assert sum(num_rows.values()) == self._out_features
        start = 0
        for name, size in num_rows.items():
            yield f"{name}.weight", self.weight[start : start + size]
            if self.bias is not None:
                yield f"{name}.bias", self.bias[start : start + size]
            start += size


def can_pack(weight: Tensor) -> bool:
    """Whether this processor has a packed layout for the weight."""
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if weight.device.type != "cpu" or not has_onednn:
        return False
    if weight.dtype == torch.bfloat16:
        return bool(_has_bfloat16())
    return weight.dtype == torch.float32


def limit_primitive_cache() -> None:
    """Bounds oneDNN's cache of compiled products; call before the first one.

    There is one entry for each pair of weight shape and row count, of about 0.55 MB, and 1024 of them by default. A
    miss costs 0.3 ms. The second variable is the cache of PyTorch's own binding, which keeps entries alive.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "16")


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
