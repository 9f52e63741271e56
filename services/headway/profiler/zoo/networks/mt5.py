"""The networks of the family `headway.profiler.zoo.families.mt5`."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.profiler.zoo.families.mt5 import Mt5Config
from headway.profiler.zoo.networks.attention import Attention
from headway.profiler.zoo.networks.feed_forward import GatedMlp
from headway.profiler.zoo.networks.transformer import Layer

NORM_EPS = 1e-6


class Mt5(nn.Module):
    def __init__(self, config: Mt5Config) -> None:
        super().__init__()
        num_layers = config.num_layers // 2
        self.tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.encoder = nn.ModuleList(_encoder_layer(config) for _ in range(num_layers))
        self.encoder_bias = RelativeBias(config, is_causal=False)
        self.encoder_norm = nn.RMSNorm(config.hidden, eps=NORM_EPS)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(num_layers))
        self.decoder_bias = RelativeBias(config, is_causal=True)
        self.decoder_norm = nn.RMSNorm(config.hidden, eps=NORM_EPS)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False) if config.has_output_matrix else None

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Ids [batch, source seq] and [batch, target seq] to logits [batch, target seq, vocabulary]."""
        memory, bias = self.tokens(source), self.encoder_bias(source)
        for layer in self.encoder:
            memory = layer(memory, bias=bias)
        memory = self.encoder_norm(memory)
        x, bias = self.tokens(target), self.decoder_bias(target)
        for layer in self.decoder:
            x = layer(x, memory, bias)
        matrix = self.tokens.weight if self.head is None else self.head.weight
        return functional.linear(self.decoder_norm(x), matrix)


class DecoderLayer(nn.Module):
    """Attention over the target so far, attention over the encoded source, and a gated MLP."""

    def __init__(self, config: Mt5Config) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.hidden, eps=NORM_EPS)
        self.attention = _attention(config)
        self.cross_norm = nn.RMSNorm(config.hidden, eps=NORM_EPS)
        self.cross_attention = _attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.hidden, eps=NORM_EPS)
        self.feed_forward = GatedMlp(config.hidden, config.inner, activation="gelu")

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor) -> Tensor:
        """[batch, seq, hidden] to the same, given `memory` [batch, source seq, hidden]; `bias` as in `Attention`."""
        x = x + self.attention(self.attention_norm(x), bias=bias)
        x = x + self.cross_attention(self.cross_norm(x), memory=memory)
        return x + self.feed_forward(self.feed_forward_norm(x))  # type: ignore[no-any-return]


class RelativeBias(nn.Module):
    """A learned number for each head and each bucket of distances; the buckets widen with the distance."""

    def __init__(self, config: Mt5Config, *, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.num_buckets = config.num_buckets
        self.max_distance = config.max_distance
        self.buckets = nn.Embedding(config.num_buckets, config.num_heads)

    def forward(self, tokens: Tensor) -> Tensor:
        """The bias of attention within `tokens` [batch, seq], [1, heads, seq, seq]; -inf ahead if causal."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        ahead = positions[None, :] - positions[:, None]
        bias = self.buckets(self._bucket(ahead)).permute(2, 0, 1).unsqueeze(0)
        return bias.masked_fill(ahead > 0, -math.inf) if self.is_causal else bias  # type: ignore[no-any-return]

    def _bucket(self, ahead: Tensor) -> Tensor:
        num_buckets = self.num_buckets if self.is_causal else self.num_buckets // 2
        first = torch.zeros_like(ahead) if self.is_causal else (ahead > 0) * num_buckets
        distance = (-ahead).clamp(min=0) if self.is_causal else ahead.abs()
        num_exact = num_buckets // 2
        octaves = torch.log(distance.clamp(min=1) / num_exact) / math.log(self.max_distance / num_exact)
        widening = num_exact + (octaves * (num_buckets - num_exact)).to(torch.int64)
        return first + torch.where(distance < num_exact, distance, widening.clamp(max=num_buckets - 1))


def _attention(config: Mt5Config) -> Attention:
    # The scale is folded into the weights' initialisation.
    return Attention(config.hidden, config.num_heads, has_qkv_bias=False, has_output_bias=False, scale=1.0)


def _encoder_layer(config: Mt5Config) -> Layer:
    norms = nn.RMSNorm(config.hidden, eps=NORM_EPS), nn.RMSNorm(config.hidden, eps=NORM_EPS)
    return Layer(_attention(config), GatedMlp(config.hidden, config.inner, activation="gelu"), norms=norms)
