"""The networks of the family `headway.profiler.zoo.families.llama`."""

from torch import Tensor, nn

from headway.profiler.zoo.families.llama import ExpertsConfig, LlamaConfig
from headway.profiler.zoo.networks.attention import Attention, rotary_table
from headway.profiler.zoo.networks.experts import GatheredExperts
from headway.profiler.zoo.networks.feed_forward import GatedMlp
from headway.profiler.zoo.networks.transformer import Layer

NORM_EPS = 1e-6


class Llama(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.rotary_base = config.rotary_base
        self.tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(_layer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.hidden, eps=NORM_EPS)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Ids [batch, seq] to logits [batch, seq, vocabulary]."""
        rotary = rotary_table(tokens.shape[1], self.head_dim, base=self.rotary_base, device=tokens.device)
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, rotary=rotary)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


class SharedExperts(nn.Module):
    """A mixture of experts beside one that sees all tokens, weighted by a gate of its own."""

    def __init__(self, hidden: int, experts: ExpertsConfig) -> None:
        super().__init__()
        self.experts = _routed(hidden, experts)
        self.shared = GatedMlp(hidden, experts.shared_inner, activation="silu")
        self.shared_gate = nn.Linear(hidden, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, seq, hidden] to the same."""
        return self.experts(x) + self.shared_gate(x).sigmoid() * self.shared(x)  # type: ignore[no-any-return]


def _layer(config: LlamaConfig) -> Layer:
    attention = Attention(
        config.hidden,
        config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        has_qkv_bias=config.has_qkv_bias,
        has_output_bias=False,
        has_qk_norm=config.has_qk_norm,
        is_causal=True,
    )
    norms = nn.RMSNorm(config.hidden, eps=NORM_EPS), nn.RMSNorm(config.hidden, eps=NORM_EPS)
    return Layer(attention, _feed_forward(config), norms=norms)


def _feed_forward(config: LlamaConfig) -> nn.Module:
    if config.experts is None:
        return GatedMlp(config.hidden, config.inner, activation="silu")
    if config.experts.shared_inner:
        return SharedExperts(config.hidden, config.experts)
    return _routed(config.hidden, config.experts)


def _routed(hidden: int, experts: ExpertsConfig) -> GatheredExperts:
    return GatheredExperts(
        hidden,
        experts.inner,
        num_experts=experts.num_experts,
        num_chosen=experts.num_experts_per_token,
        is_normalized=experts.is_normalized,
        capacity_factor=experts.capacity_factor,
    )
