"""Small training steps and clusters that the tests of training plans share."""

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor, nn

from headway.core.catalogue import built_in_catalogue
from headway.core.cluster import Fabric
from headway.core.cost.catalogued import CatalogueCosts
from headway.core.graph import Graph
from headway.core.training_cluster import NodeGroup, TrainingCluster
from headway.planner.training.problem import TrainingProblem
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.trace import trace

HIDDEN, BATCH, NUM_BLOCKS = 512, 8, 4
V100 = CatalogueCosts(built_in_catalogue().devices["V100-16"])
COSTS = (V100,)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.down = nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(torch.relu(self.up(x)))
        return y


class Mlp(nn.Module):
    """Blocks of two products; the loss is a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(NUM_BLOCKS))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


class Tied(nn.Module):
    """A table that is the head too, and blocks between them; the loss is that of a language model."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(4096, 256)
        self.blocks = nn.ModuleList(nn.Linear(256, 256) for _ in range(NUM_BLOCKS))
        self.head = nn.Linear(256, 4096, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = torch.relu(block(x))
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


@cache
def tied() -> Graph:
    tokens = torch.zeros(BATCH, 16, dtype=torch.long)
    traced = trace(Tied(), (tokens, tokens), train=True, report=lambda _: None)
    return build_graph(traced, name="tied", is_training=True, batch=BATCH)


@cache
def mlp() -> Graph:
    traced = trace(Mlp(), (torch.zeros(BATCH, HIDDEN),), train=True, report=lambda _: None)
    return build_graph(traced, name="mlp", is_training=True, batch=BATCH)


def nodes_of(num_nodes: int = 1, devices_per_node: int = 4, *, memory_bytes: int = 16 * 10**9) -> NodeGroup:
    return NodeGroup(
        device="V100-16",
        num_nodes=num_nodes,
        devices_per_node=devices_per_node,
        memory_bytes=memory_bytes,
        link=Fabric(latency_s=2e-5, bytes_per_s=100e9),
        network=Fabric(latency_s=4e-5, bytes_per_s=3e9),
    )


def problem_of(nodes: NodeGroup | None = None, **changes: object) -> TrainingProblem:
    problem = TrainingProblem(
        model="mlp",
        graph=mlp(),
        cluster=TrainingCluster(groups=(nodes or nodes_of(),)),
        batch=1 << 14,
        micro_batches=(4,),
    )
    return replace(problem, **changes)  # type: ignore[arg-type]
