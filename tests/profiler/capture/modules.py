"""Small modules of the kinds that are captured, and `graph_of`, which captures one in this process."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.core.graph import Graph
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.trace import trace

BATCH, SEQ, HIDDEN, HEADS, VOCAB = 2, 8, 16, 4, 32


def graph_of(module: nn.Module, *inputs: Any, train: bool = False) -> Graph:
    return build_graph(trace(module, inputs, train=train, report=lambda _: None), name="test", is_training=train)


class Block(nn.Module):
    """A transformer layer whose attention is written out, as on devices without a fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.output = nn.Linear(HIDDEN, HIDDEN)
        self.up = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.down = nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            t.unflatten(-1, (HEADS, HIDDEN // HEADS)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        scores = (q @ k.transpose(-1, -2)).softmax(dim=-1)
        x = x + self.output((scores @ v).transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(x)))


class Transformer(nn.Module):
    """Tied embeddings, so that one matrix is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 4, 1),
            nn.ConvTranspose2d(4, 2, 2, stride=2),
            nn.AdaptiveAvgPool2d(1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).flatten(1)


class Experts(nn.Module):
    """Each expert takes the tokens that prefer it most."""

    def __init__(self, num_experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(HIDDEN, num_experts, bias=False)
        self.up = nn.Parameter(torch.randn(num_experts, HIDDEN, 24))
        self.down = nn.Parameter(torch.randn(num_experts, 24, HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        weights, members = self.router(x).softmax(dim=-1).t().topk(4, dim=-1)
        outputs = torch.bmm(torch.bmm(x[members], self.up).relu(), self.down) * weights.unsqueeze(-1)
        return torch.zeros_like(x).index_add(0, members.flatten(), outputs.flatten(0, 1))


class Recommender(nn.Module):
    """Bags of embeddings, their dot products and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(50, 8, mode="sum") for _ in range(3))
        self.top = nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, indices: Tensor) -> Tensor:
        features = torch.stack([table(column) for table, column in zip(self.tables, indices, strict=True)], dim=1)
        return self.top(torch.bmm(features, features.transpose(1, 2)).flatten(1))


def tokens(*shape: int) -> Tensor:
    return torch.zeros(shape or (BATCH, SEQ), dtype=torch.int64, device="meta")


CASES: dict[str, tuple[type[nn.Module], tuple[Tensor, ...]]] = {
    "transformer": (Transformer, (tokens(),)),
    "convnet": (ConvNet, (torch.zeros(2, 3, 8, 8, device="meta"),)),
    "experts": (Experts, (torch.zeros(16, HIDDEN, device="meta"),)),
    "recommender": (Recommender, (tokens(3, 4, 5),)),
}
