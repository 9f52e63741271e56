"""The feed-forward halves of transformer layers, and towers of plain ones. All map [..., hidden] to the same."""

from itertools import pairwise
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.gelu(self.up(x)))  # type: ignore[no-any-return]


class GatedMlp(nn.Module):
    """Two linear layers whose product, one of them through an activation, goes through a third."""

    def __init__(self, hidden: int, inner: int, *, activation: Literal["silu", "gelu"], has_bias: bool = False) -> None:
        super().__init__()
        self.activation = nn.SiLU() if activation == "silu" else nn.GELU(approximate="tanh")
        self.gate = nn.Linear(hidden, inner, bias=has_bias)
        self.up = nn.Linear(hidden, inner, bias=has_bias)
        self.down = nn.Linear(inner, hidden, bias=has_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


def tower(num_layers: int, *, width_in: int, hidden: int) -> nn.Sequential:
    """Linear layers of `hidden` outputs with a ReLU after each."""
    widths = [width_in] + [hidden] * num_layers
    layers = [(nn.Linear(before, after), nn.ReLU()) for before, after in pairwise(widths)]
    return nn.Sequential(*(module for pair in layers for module in pair))
