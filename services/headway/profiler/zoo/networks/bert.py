"""The network of BERT; see `headway.profiler.zoo.families.bert`."""

from torch import Tensor, nn
from torch.nn import functional

from headway.profiler.zoo.families.bert import BertConfig
from headway.profiler.zoo.networks.attention import Attention
from headway.profiler.zoo.networks.feed_forward import Mlp
from headway.profiler.zoo.networks.transformer import Embedding, PostNormLayer, layer_norms

NORM_EPS = 1e-12


class Bert(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config.vocabulary, config.hidden, seq=config.seq)
        self.token_types = nn.Embedding(config.num_token_types, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, NORM_EPS)
        self.layers = nn.ModuleList(
            PostNormLayer(
                Attention(config.hidden, config.num_heads),
                Mlp(config.hidden, 4 * config.hidden),
                norms=layer_norms(config.hidden, eps=NORM_EPS),
            )
            for _ in range(config.num_layers)
        )
        self.pooler = nn.Linear(config.hidden, config.hidden)

    def forward(self, tokens: Tensor, token_types: Tensor) -> tuple[Tensor, Tensor]:
        """Maps ids and types, [batch, seq] each, to hidden states [batch, seq, hidden] and their pool [batch, hidden].

        In training the first are logits [batch, seq, vocabulary] of the masked tokens, by the matrix of the embedding.
        """
        x = self.norm(self.embedding(tokens) + self.token_types(token_types))
        for layer in self.layers:
            x = layer(x)
        scores = functional.linear(x, self.embedding.tokens.weight) if self.training else x
        return scores, self.pooler(x[:, 0]).tanh()
