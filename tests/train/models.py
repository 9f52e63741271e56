"""Small models that give their own loss: a chain with a tied embedding, an encoder with its decoder, and branches that
meet or end apart."""

from collections.abc import Sequence

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

    def __init__(self, *, dropout: float = 0.0, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, HIDDEN), nn.Embedding(SEQ, HIDDEN)
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


class Mt5(nn.Module):
    """An encoder and a decoder that share their token embedding, which is the output matrix too, and the bias by which
    attention goes by distance."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.distances = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(2 * SEQ - 1, 2)
        self.encode, self.decode = Lookup(), Lookup()
        self.encoder, self.decoder = Attention(is_causal=False), Attention(is_causal=True)
        self.cross, self.norm = Attention(is_causal=False), nn.LayerNorm(HIDDEN)

    def forward(self, tokens: Tensor, answers: Tensor, targets: Tensor) -> Tensor:
        given, answered = self.encode(tokens, self.tokens.weight), self.decode(answers, self.tokens.weight)
        made = self.encoder(given, given, self.distances.weight)
        x = self.decoder(answered, answered, self.distances.weight)
        x = self.norm(self.cross(x, made, self.distances.weight))
        scores = functional.linear(x, self.tokens.weight)
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


class Lookup(nn.Module):
    def forward(self, tokens: Tensor, weight: Tensor) -> Tensor:
        return functional.embedding(tokens, weight)


class Attention(nn.Module):
    def __init__(self, *, is_causal: bool) -> None:
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.both = nn.Linear(HIDDEN, 2 * HIDDEN)
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.is_causal = is_causal

    def forward(self, x: Tensor, read: Tensor, distances: Tensor) -> Tensor:
        places = torch.arange(SEQ, device=x.device)
        bias = distances[places[None, :] - places[:, None] + SEQ - 1].permute(2, 0, 1)
        if self.is_causal:
            bias = bias.masked_fill(places[None, :] > places[:, None], float("-inf"))
        keys, values = self.both(read).unflatten(-1, (2, 2, -1)).permute(2, 0, 3, 1, 4)
        queries = self.query(x).unflatten(-1, (2, -1)).transpose(1, 2)
        weights = torch.softmax(queries @ keys.transpose(-1, -2) + bias, dim=-1)
        mixed: Tensor = self.out((weights @ values).transpose(1, 2).flatten(2))
        return x + mixed


class Modes(nn.Module):
    """Encoders of several modes side by side, and a block over what they give, as MMT and Flava have them."""

    def __init__(self, num_modes: int) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(nn.Sequential(nn.Linear(FEATURES, HIDDEN), Block()) for _ in range(num_modes))
        self.join = Join()
        self.top = nn.Sequential(nn.Linear(num_modes * HIDDEN, HIDDEN), Block())
        self.head = nn.Linear(HIDDEN, 1)
        self.error = nn.MSELoss()

    def loss(self, modes: Sequence[Tensor], response: Tensor) -> Tensor:
        first, *others = [encoder(mode) for encoder, mode in zip(self.encoders, modes, strict=True)]
        for other in others:
            first = self.join(first, other)
        return self.error(self.head(self.top(first)), response)


class Flava(Modes):
    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, text: Tensor, image: Tensor, response: Tensor) -> Tensor:
        return self.loss((text, image), response)


class Mmt(Modes):
    def __init__(self) -> None:
        super().__init__(3)

    def forward(self, text: Tensor, image: Tensor, sound: Tensor, response: Tensor) -> Tensor:
        return self.loss((text, image, sound), response)


class Towers(nn.Module):
    """Two encoders that end apart, each with an error of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(
            nn.ModuleList((nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, 1))) for _ in range(2)
        )

    def forward(self, text: Tensor, image: Tensor, response: Tensor) -> Tensor:
        (low, last), (other_low, other_last) = self.encoders  # type: ignore[misc]
        first, second = last(torch.tanh(low(text))), other_last(torch.tanh(other_low(image)))
        return functional.mse_loss(first, response) + functional.mse_loss(second, response)


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
    if isinstance(model, Mt5):
        names = ("tokens", "answers", "targets")
        return {name: torch.randint(VOCABULARY, (count, SEQ), generator=generator) for name in names}
    if isinstance(model, (Modes, Towers)):
        shapes = dict.fromkeys(("text", "image", "sound") if isinstance(model, Mmt) else ("text", "image"), FEATURES)
        return {
            name: torch.randn(count, SEQ, width, generator=generator, dtype=torch.float64)
            for name, width in {**shapes, "response": 1}.items()
        }
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
