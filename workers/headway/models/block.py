"""The transformer block of OPT and GPT-2: layer norms with biases and a plain MLP."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from headway.core.model import ModelSpec
from headway.models.attention import Attention, AttentionContext, LayerCache
from headway.models.layout import Layout
from headway.models.linear import Linear
from headway.models.row_linear import RowLinear
from headway.models.weights import NamedPart, Part, Piece


class LayerNorm:
    """Normalises rows to mean 0 and variance 1, then scales and shifts."""

    def __init__(self, spec: ModelSpec, *, dtype: torch.dtype, device: torch.device) -> None:
        self._shape = (spec.hidden_size,)
        self._eps = spec.norm_eps
        self.weight = torch.empty(spec.hidden_size, dtype=dtype, device=device)
        self.bias = torch.empty(spec.hidden_size, dtype=dtype, device=device)

    def __call__(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self._shape, self.weight, self.bias, self._eps)

    def named(self, name: str) -> Iterator[NamedPart]:
        yield f"{name}.weight", Part.whole(self.weight)
        yield f"{name}.bias", Part.whole(self.bias)


class Block:
    """Attention and an MLP, each normalised before (`spec.pre_norm`) or after it is added to the residual."""

    def __init__(
        self, spec: ModelSpec, layer: int, *, layout: Layout, dtype: torch.dtype, device: torch.device
    ) -> None:
        hidden_size = spec.hidden_size
        self._inner = Piece(layout.shard.mlp, spec.intermediate_size)
        self.attention = Attention(spec, layer, layout=layout, dtype=dtype, device=device, cos_sin=None)
        self.attention_norm = LayerNorm(spec, dtype=dtype, device=device)
        self.mlp_norm = LayerNorm(spec, dtype=dtype, device=device)
        self.up = Linear(
            hidden_size, len(self._inner), bias=spec.mlp_bias, dtype=dtype, device=device, activation=spec.activation
        )
        self.down = RowLinear(
            len(self._inner),
            hidden_size,
            bias=spec.mlp_bias,
            dtype=dtype,
            device=device,
            axis=layout.tensor,
            site="mlp",
        )
        self._pre_norm = spec.pre_norm

    def __call__(
        self,
        hidden: Tensor,
        context: AttentionContext,
        cache: LayerCache,
        *,
        rows: Tensor | None,
    ) -> Tensor:
        """hidden [t, hidden] -> the same, or its `rows` only."""
        x = self.attention_norm(hidden) if self._pre_norm else hidden
        attended = self.attention(x, context, cache)
        if rows is not None:
            attended, hidden = attended[rows], hidden[rows]
        hidden = self.attention.output(attended, residual=hidden)
        if self._pre_norm:
            return self.down(self.up(self.mlp_norm(hidden)), residual=hidden)
        hidden = self.attention_norm(hidden)
        return self.mlp_norm(self.down(self.up(hidden), residual=hidden))

    def named_mlp(self, *, up: str, down: str, transposed: bool = False) -> Iterator[NamedPart]:
        """The MLP's stored tensors, by what the checkpoint calls its two layers."""
        yield from self.up.named(up, rows=self._inner, transposed=transposed)
        yield from self.down.named(down, columns=self._inner, transposed=transposed)

    def linears(self) -> list[Linear]:
        return [*self.attention.linears(), self.up, self.down]
