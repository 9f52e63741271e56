"""Small models that give their own loss: a chain with a tied embedding, and branches that meet."""

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, HIDDEN, SEQ, NUM_BLOCKS = 29, 16, 6, 2
FEATURES, ENTRIES, BAG = 12, 23, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.mlp_norm, self.up, self.down = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 32), nn.Linear(32, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        q, k, v = (y.view(batch, seq, 2, -1).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, HIDDEN))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x))))  # type: ignore[no-any-return]


class Gpt(nn.Module):
    """Its output matrix is its token embedding."""

    def __init__(self, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(SEQ, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(NUM_BLOCKS))
        self.norm, self.dropout = nn.LayerNorm(HIDDEN), nn.Dropout(dropout)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.dropout(self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device)))
        for block in self.blocks:
            x = block(x)
        scores = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


class Join(nn.Module):
    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.cat((first, second), dim=-1)


class Branches(nn.Module):
    """Dense features and an embedding bag side by side, as DLRM and CANDLE-Uno have them, and an MLP over both."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.bag, self.sparse = nn.Embedding(ENTRIES, 8), nn.Sequential(nn.Linear(BAG * 8, 16), nn.Tanh())
        self.top = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
        self.join, self.error = Join(), nn.MSELoss()

    def forward(self, features: Tensor, entries: Tensor, response: Tensor) -> Tensor:
        both = self.join(self.dense(features), self.sparse(self.bag(entries).flatten(1)))
        return self.error(self.top(both), response)


def inputs(model: nn.Module, count: int, *, seed: int = 0, padded: bool = False) -> dict[str, Tensor]:
    """Examples for one of the models, by the names of its arguments, in float64."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(model, Gpt):
        tokens = torch.randint(VOCABULARY, (count, SEQ + 1), generator=generator)
        targets = tokens[:, 1:].clone()
        if padded:
            for row, length in enumerate(torch.randint(1, SEQ + 1, (count,), generator=generator).tolist()):
                targets[row, length:] = -100
        return {"tokens": tokens[:, :-1].contiguous(), "targets": targets}
    return {
        "features": torch.randn(count, FEATURES, generator=generator, dtype=torch.float64),
        "entries": torch.randint(ENTRIES, (count, BAG), generator=generator),
        "response": torch.randn(count, 1, generator=generator, dtype=torch.float64),
    }


def gpt_stage(module: str, num_stages: int) -> int:
    """The stage of a GPT's module, where embeddings, blocks and what is behind them are spread evenly."""
    if module.startswith("blocks."):
        place = int(module.split(".")[1]) + 1
    else:
        place = 0 if module in ("tokens", "positions", "dropout") else NUM_BLOCKS + 1
    return place * num_stages // (NUM_BLOCKS + 2)


def branch_stage(module: str) -> int:
    """The dense branch, the sparse one, and what is over both."""
    return {"dense": 0, "bag": 1, "sparse": 1}.get(module.split(".", maxsplit=1)[0], 2)
