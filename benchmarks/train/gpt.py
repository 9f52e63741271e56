"""A small GPT that gives its own loss, its captured step, and ways to cut it into stages."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.core.execution.certifier import certify
from headway.core.execution.compiler import compile_execution
from headway.core.execution.execution import Execution, StageSpec
from headway.core.execution.orders import stage_orders
from headway.core.graph import Graph
from headway.core.program import Program
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.program import build_program
from headway.profiler.capture.trace import trace

_NUM_HEADS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Of a GPT; `hidden` and `seq` say what a message between stages takes."""

    hidden: int
    num_layers: int = 8
    seq: int = 64
    vocabulary: int = 512


class Block(nn.Module):
    """Attention and an MLP, each behind a norm."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(hidden), nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp_norm, self.up, self.down = nn.LayerNorm(hidden), nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)  # fmt: skip  # noqa: E501

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, hidden = x.shape
        q, k, v = (y.view(batch, seq, _NUM_HEADS, -1).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x))))  # type: ignore[no-any-return]


class Part(nn.Module):
    """Some of the blocks, with what is before the first and behind the last one."""

    def __init__(self, size: Size, layers: range) -> None:
        super().__init__()
        if layers.start == 0:
            self.tokens, self.positions = nn.Embedding(size.vocabulary, size.hidden), nn.Embedding(size.seq, size.hidden)  # fmt: skip  # noqa: E501
        self.blocks = nn.ModuleList(Block(size.hidden) for _ in layers)
        if layers.stop == size.num_layers:
            self.norm, self.head = nn.LayerNorm(size.hidden), nn.Linear(size.hidden, size.vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        if hasattr(self, "tokens"):
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if hasattr(self, "head") else x


class Gpt(nn.Module):
    """The whole, with its loss."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.part = Part(size, range(size.num_layers))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return loss_of(self.part(tokens), targets)


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy."""
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


@dataclass(frozen=True, kw_only=True)
class Captured:
    """Attributes:
    programs: the step by its number of examples.
    """

    size: Size
    model: Gpt
    graph: Graph
    programs: dict[int, Program]

    @property
    def sums(self) -> dict[str, Tensor]:
        """Zeros as parameters, by name."""
        return {name: torch.zeros_like(each) for name, each in self.model.named_parameters()}

    def execution(
        self, cuts: Sequence[int], *, batch: int, micro_batch: int, method: str = "1f1b", recomputes: bool = False
    ) -> Execution:
        """A chain of stages, a rank each.

        Args:
            cuts: the first layer of each stage but the first.
        """
        stages = self.stages(cuts, micro_batch, recomputes=recomputes)
        successors = [(number + 1,) if number + 1 < len(stages) else () for number in range(len(stages))]
        orders = stage_orders(method, stages, successors, batch=batch)
        used = {micro_batch: self.programs[micro_batch]}
        found = compile_execution(used, stages, orders, batch=batch, splits=False, optimizer="sgd")
        assert certify(found).faults == ()
        return found

    def copies(self, *, batch: int, micro_batch: int, zero: int) -> Execution:
        """The whole on two ranks."""
        (stage,) = self.stages((), micro_batch, recomputes=False)
        stages = [replace(stage, ranks=(0, 1), zero=zero)]
        orders = stage_orders("1f1b", stages, [()], batch=batch)
        used = {micro_batch // 2: self.programs[micro_batch // 2]}
        found = compile_execution(used, stages, orders, batch=batch, splits=False, optimizer="adamw")
        assert certify(found).faults == ()
        return found

    def stages(
        self, cuts: Sequence[int], micro_batch: int, *, recomputes: bool, ranks: Sequence[int] | None = None
    ) -> list[StageSpec]:
        """What is in no layer goes with what it reads.

        Args:
            ranks: of each stage; None for one of its own.
        """
        place: dict[str, int] = {}
        maker = {name: op.name for op in self.graph.operators for name in op.outputs}
        for op in self.graph.operators:
            if not op.is_backward:
                before = max((place[maker[name]] for name in op.inputs if name in maker), default=0)
                parts = op.module.split(".")
                is_block = len(parts) > 2 and parts[1] == "blocks"
                own = sum(int(parts[2]) >= cut for cut in cuts) if is_block else before
                place[op.name] = max(before, own)
        return [
            StageSpec(
                forward=tuple(op.name for op in self.graph.operators if place.get(op.name) == number),
                backward=tuple(
                    op.name for op in self.graph.operators if op.is_backward and place[op.forward] == number
                ),
                ranks=(number if ranks is None else ranks[number],),
                micro_batch=micro_batch,
                recomputes=recomputes,
            )
            for number in range(len(cuts) + 1)
        ]


def capture(size: Size, micro_batches: Sequence[int]) -> Captured:
    """Traces the step with each number of examples."""
    torch.manual_seed(0)
    model = Gpt(size)
    graph, programs = None, {}
    for count in micro_batches:
        tokens = torch.zeros(count, size.seq, dtype=torch.long)
        traced = trace(copy.deepcopy(model), (tokens, tokens), train=True, report=lambda _: None)
        graph, programs[count] = build_graph(traced, name="gpt", is_training=True, batch=count), build_program(traced)
    assert graph is not None
    return Captured(size=size, model=model, graph=graph, programs=programs)
