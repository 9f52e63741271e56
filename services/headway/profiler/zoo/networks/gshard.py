"""The networks of the family `headway.profiler.zoo.families.gshard`."""

from torch import Tensor, nn
from torch.nn import functional

from headway.profiler.zoo.families.gshard import GShardConfig
from headway.profiler.zoo.networks.attention import Attention
from headway.profiler.zoo.networks.experts import DispatchedExperts
from headway.profiler.zoo.networks.feed_forward import Mlp
from headway.profiler.zoo.networks.transformer import Embedding, Layer, layer_norms


class GShard(nn.Module):
    def __init__(self, config: GShardConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config.vocabulary, config.hidden, seq=config.seq)
        self.layers = nn.ModuleList(
            Layer(
                Attention(config.hidden, config.num_heads, is_causal=True),
                _feed_forward(config, is_sparse=number % 2 == 1),
                norms=layer_norms(config.hidden),
            )
            for number in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(config.hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        """Ids [batch, seq] to logits [batch, seq, vocabulary]."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return functional.linear(self.norm(x), self.embedding.tokens.weight)


def _feed_forward(config: GShardConfig, *, is_sparse: bool) -> nn.Module:
    inner = config.inner_factor * config.hidden
    if not is_sparse:
        return Mlp(config.hidden, inner)
    return DispatchedExperts(
        config.hidden, inner, num_experts=config.num_experts, num_chosen=config.num_experts_per_token
    )
