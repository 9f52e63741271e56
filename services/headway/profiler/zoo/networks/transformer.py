"""Transformer layers: attention and a feed-forward block with norms and residual connections."""

import torch
from torch import Tensor, nn

from headway.profiler.zoo.networks.attention import Attention


class Layer(nn.Module):
    """A layer with norms before the attention and before the feed-forward block."""

    def __init__(self, attention: Attention, feed_forward: nn.Module, *, norms: tuple[nn.Module, nn.Module]) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = norms
        self.attention = attention
        self.feed_forward = feed_forward

    def forward(self, x: Tensor, *, rotary: tuple[Tensor, Tensor] | None = None, bias: Tensor | None = None) -> Tensor:
        """Maps [batch, seq, hidden] to the same shape; the rest is as in `Attention`."""
        x = x + self.attention(self.attention_norm(x), rotary=rotary, bias=bias)
        return x + self.feed_forward(self.feed_forward_norm(x))  # type: ignore[no-any-return]


class PostNormLayer(nn.Module):
    """A layer with norms after the residual connections, as in the first transformers."""

    def __init__(self, attention: Attention, feed_forward: nn.Module, *, norms: tuple[nn.Module, nn.Module]) -> None:
        super().__init__()
        self.attention_norm, self.feed_forward_norm = norms
        self.attention = attention
        self.feed_forward = feed_forward

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, seq, hidden] to the same shape."""
        x = self.attention_norm(x + self.attention(x))
        return self.feed_forward_norm(x + self.feed_forward(x))  # type: ignore[no-any-return]


def layer_norms(hidden: int, *, eps: float = 1e-5) -> tuple[nn.Module, nn.Module]:
    return nn.LayerNorm(hidden, eps), nn.LayerNorm(hidden, eps)


class Embedding(nn.Module):
    """A learned vector for each token and one for each position below `seq`."""

    def __init__(self, vocabulary: int, hidden: int, *, seq: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(seq, hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps ids [batch, seq] to [batch, seq, hidden]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.tokens(tokens) + self.positions(positions)  # type: ignore[no-any-return]
