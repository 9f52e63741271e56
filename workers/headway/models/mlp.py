"""The feed-forward part of a Llama block: a gated MLP."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from headway.core.model import ModelSpec
from headway.models.linear import Linear


class FeedForward(Protocol):
    """What follows attention in a block: a dense MLP or a mixture of experts."""

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, hidden] -> a new [T, hidden]."""

    def named(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """Checkpoint tensor names, under `name`, and the views that they fill."""

    def linears(self) -> list[Linear]:
        """The layers to pack once they are loaded."""


class GatedMlp:
    """`down(silu(gate(x)) * up(x))`, the gates and what they gate computed in one product."""

    def __init__(self, spec: ModelSpec, intermediate_size: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self._size = intermediate_size
        self._gate_up = Linear(
            spec.hidden_size,
            2 * intermediate_size,
            bias=spec.mlp_bias,
            dtype=dtype,
            device=device,
            activation=spec.activation,
            is_gated=True,
        )
        self._down = Linear(intermediate_size, spec.hidden_size, bias=spec.mlp_bias, dtype=dtype, device=device)

    def __call__(self, x: Tensor) -> Tensor:
        return self._down(self._gate_up(x))

    def named(self, name: str) -> Iterator[tuple[str, Tensor]]:
        for part, tensor in self._gate_up.named_parts(gate_proj=self._size, up_proj=self._size):
            yield f"{name}.{part}", tensor
        yield from self._down.named(f"{name}.down_proj")

    def linears(self) -> list[Linear]:
        return [self._gate_up, self._down]
