"""A linear layer: its parameters while they are loaded, and the product that they are packed into."""

from collections.abc import Iterator

import torch
from torch import Tensor

from headway.models.product import Epilogue, Product, TorchProduct, bind_product
from headway.models.weights import NamedPart, Part, Piece


class Linear:
    """`activation(x @ weight.T + bias)`.

    Args:
        activation: 'none', 'silu', 'relu', 'gelu' or 'gelu_tanh'.
        is_gated: the output is `silu(gate) * value`, whose weights are the two halves of the rows; with 'silu'.
        is_quantizable: whether a quantised model rounds the weight.
        is_searched: whether `largest` is worth memory of its own, once packed.
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
        is_gated: bool = False,
        is_quantizable: bool = True,
        is_searched: bool = False,
        weight: Tensor | None = None,
    ) -> None:
        self.weight = torch.empty(out_features, in_features, dtype=dtype, device=device) if weight is None else weight
        self.bias = torch.empty(out_features, dtype=dtype, device=device) if bias else None
        self._epilogue = Epilogue(self.bias, activation, is_gated)
        self._is_quantizable = is_quantizable
        self._is_searched = is_searched
        self._product: Product = TorchProduct(self.weight, self._epilogue)

    def pack(self, *, quantization: str | None = None) -> None:
        """Puts the weight into the layout that this processor multiplies fastest with; once, when it is loaded.

        Args:
            quantization: 'int8' rounds the weight, if it may be; None keeps it as it is.
        """
        quantization = quantization if self._is_quantizable else None
        self._product = bind_product(
            self.weight, self._epilogue, quantization=quantization, is_searched=self._is_searched
        )
        self.weight = self.weight.new_empty(0)

    def __call__(self, x: Tensor, *, residual: Tensor | None = None) -> Tensor:
        """x [T, in] -> a new [T, out], or half as wide if gated; `residual` [T, out] is added if given."""
        return self._product(x, residual)

    def largest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the largest entry of each row of `self(x)`, float32 [T], and the first place where it is, int64
        [T].
        """
        return self._product.largest(x)

    def named(
        self, name: str, *, rows: Piece | None = None, columns: Piece | None = None, transposed: bool = False
    ) -> Iterator[NamedPart]:
        """The stored weight and bias, and the parts that they fill: all of them, or the given rows and columns.

        `transposed`: the weight is stored as [in, out].
        """
        rows = rows or Piece.whole(len(self.weight))
        return self.named_parts((name, rows), columns=columns, transposed=transposed)

    def named_parts(
        self, *stored: tuple[str, Piece], columns: Piece | None = None, transposed: bool = False
    ) -> Iterator[NamedPart]:
        """The same for a fused layer: what is stored for it, in the order of its rows, by name and rows."""
        assert sum(len(rows) for _, rows in stored) == len(self.weight)
        columns = columns or Piece.whole(self.weight.shape[1])
        start = 0
        for name, rows in stored:
            own = slice(start, start + len(rows))
            weight = self.weight[own]
            yield f"{name}.weight", Part.of(weight.t(), columns, rows) if transposed else Part.of(weight, rows, columns)
            if self.bias is not None:
                yield f"{name}.bias", Part.of(self.bias[own], rows)
            start = own.stop
