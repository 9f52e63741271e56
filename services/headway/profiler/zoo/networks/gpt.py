"""The networks of the family `headway.profiler.zoo.families.gpt`."""

from torch import Tensor, nn
from torch.nn import functional

from headway.profiler.zoo.families.gpt import GptConfig
from headway.profiler.zoo.networks.attention import Attention
from headway.profiler.zoo.networks.feed_forward import Mlp
from headway.profiler.zoo.networks.transformer import Embedding, Layer, layer_norms


class Gpt(nn.Module):
    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config.vocabulary, config.hidden, seq=config.seq)
        self.layers = nn.ModuleList(
            Layer(
                Attention(config.hidden, config.num_heads, is_causal=True),
                Mlp(config.hidden, 4 * config.hidden),
                norms=layer_norms(config.hidden),
            )
            for _ in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(config.hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        """Ids [batch, seq] to logits [batch, seq, vocabulary]."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return functional.linear(self.norm(x), self.embedding.tokens.weight)
