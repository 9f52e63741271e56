"""The feed-forward part of a Llama block: a gated MLP."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from headway.core.model import ModelSpec
from headway.models.layout import TensorAxis
from headway.models.linear import Linear
from headway.models.row_linear import RowLinear
from headway.models.weights import NamedPart, Piece


class FeedForward(Protocol):
    """The part of a block that follows attention: a dense MLP or a mixture of experts."""

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, hidden] -> a new [T, hidden]."""

    def named(self) -> Iterator[NamedPart]:
        """Returns the stored tensors that fill it."""

    def linears(self) -> list[Linear]:
        """The layers to pack once they are loaded."""


class GatedMlp:
    """`down(silu(gate(x)) * up(x))`, the gates and what they gate computed in one product."""

    def __init__(
        self,
        spec: ModelSpec,
        inner: Piece,
        *,
        axis: TensorAxis,
        dtype: torch.dtype,
        device: torch.device,
        weights: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> None:
        """
        Args:
            inner: of the intermediate size, on this rank.
            axis: the ranks that have the rest.
            weights: of both layers, where they lie already; see `Linear`.
        """
        self._inner = inner
        gate_up, down = weights
        self._gate_up = Linear(
            spec.hidden_size,
            2 * len(inner),
            bias=spec.mlp_bias,
            dtype=dtype,
            device=device,
            activation=spec.activation,
            is_gated=True,
            weight=gate_up,
        )
        self._down = RowLinear(
            len(inner),
            spec.hidden_size,
            bias=spec.mlp_bias,
            dtype=dtype,
            device=device,
            axis=axis,
            site="mlp",
            weight=down,
        )

    def __call__(self, x: Tensor) -> Tensor:
        return self._down(self._gate_up(x))

    def summand(self, x: Tensor) -> Tensor:
        """Returns this rank's part of the result, for an owner that adds up more than that."""
        return self._down.summand(self._gate_up(x))

    def named(self) -> Iterator[NamedPart]:
        yield from self._gate_up.named_parts(("gate_proj", self._inner), ("up_proj", self._inner))
        yield from self._down.named("down_proj", columns=self._inner)

    def linears(self) -> list[Linear]:
        return [self._gate_up, self._down]
