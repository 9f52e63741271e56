"""Every strategy of every operator of small models, run on real tensors.

A device of a strategy sees only its shards: all other elements are garbage, or zeros where results are partial sums.
What it writes into its own part must be what the unsharded operator writes there, and partial results must join to it.
"""

import operator as python_operator
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from headway.core.graph import Graph, Operator, OperatorKind
from headway.core.iteration import Reduction
from headway.core.sharding_spec import Shard, ShardingSpec
from headway.planner.intra.strategies import PartialSum, Strategy, strategies
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.trace import Trace, trace
from headway.profiler.capture.viewing import is_view
from tests.profiler.capture.modules import BATCH, SEQ, VOCAB, Block, ConvNet, Transformer

MESHES = ((2, 2), (4,), (1, 2))
_COUNTED = {"aten.nll_loss_forward.default": 1}  # results before those that count indices, which zeros don't take away
# Operands that are added to a sum: one device alone adds them.
_ADDED = {"aten.addmm.default": 0, "aten.convolution.default": 2}


class Recorded(fx.Interpreter):
    """Runs a trace and keeps what every node gave."""

    def __init__(self, traced: Trace) -> None:
        super().__init__(traced.graph)
        self.given: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        self.given[n] = result = super().run_node(n)
        return result


class Run:
    """A traced model with the values of all its tensors."""

    def __init__(self, module: nn.Module, *inputs: torch.Tensor) -> None:
        state = [*module.named_parameters(), *module.named_buffers()]
        values = {name: tensor.detach().clone() for name, tensor in state}
        traced = trace(module, inputs, train=True, report=lambda _: None)
        self.graph: Graph = build_graph(traced, name="test", is_training=True)
        self.nodes = {node.name: node for node in traced.graph.graph.nodes}
        recorded = Recorded(traced)
        recorded.run({name: values[name] for name in traced.names if name in values}, list(inputs))
        self.given = recorded.given
        placeholders = [node for node in traced.graph.graph.nodes if node.op == "placeholder"]
        self.names = dict(zip(placeholders, traced.names, strict=True))

    def tensors(self, operator: Operator) -> dict[str, torch.Tensor]:
        """What it reads, by the names of the tensors behind views."""
        found: dict[str, torch.Tensor] = {}
        self._bases(self.nodes[operator.name], found)
        return found

    def execute(self, operator: Operator, tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """Its results on other tensors in the place of those that it reads."""
        node = self.nodes[operator.name]
        arguments = fx.node.map_arg((node.args, dict(node.kwargs)), lambda leaf: self._value(leaf, tensors))
        result = node.target(*arguments[0], **arguments[1])  # type: ignore[operator]
        return [part for part in (result if isinstance(result, list | tuple) else [result]) if part is not None]

    def _bases(self, node: fx.Node, found: dict[str, torch.Tensor]) -> None:
        for leaf in node.all_input_nodes:
            if self._is_view(leaf):
                self._bases(leaf, found)
            else:
                found[self._name(leaf)] = self._given(leaf)

    def _value(self, node: fx.Node, tensors: dict[str, torch.Tensor]) -> Any:
        if not self._is_view(node):
            return tensors[self._name(node)]
        arguments = fx.node.map_arg((node.args, dict(node.kwargs)), lambda leaf: self._value(leaf, tensors))
        return node.target(*arguments[0], **arguments[1])  # type: ignore[operator]

    def _is_view(self, node: fx.Node) -> bool:
        if node.op != "call_function":
            return False
        if node.target is python_operator.getitem:
            return self._is_view(node.args[0])  # type: ignore[arg-type]
        return is_view(node.target)  # type: ignore[arg-type]

    def _name(self, node: fx.Node) -> str:
        if node.target is python_operator.getitem:
            return f"{node.args[0]}.{node.args[1]}"
        return self.names.get(node, node.name)

    def _given(self, node: fx.Node) -> torch.Tensor:
        value = self.given[node]
        assert isinstance(value, torch.Tensor)
        return value


def inside(shape: torch.Size, spec: ShardingSpec, mesh: tuple[int, ...], device: tuple[int, ...]) -> torch.Tensor:
    """Which elements of a tensor lie on a device."""
    mask = torch.ones(shape, dtype=torch.bool)
    parts: dict[Shard, int] = {}
    for axis, shard in enumerate(spec.axes):
        if shard is None:
            continue
        index = torch.arange(shape[shard.dim])
        parts[shard] = parts.get(shard, 1) * mesh[axis]
        length = shape[shard.dim] // (shard.outer * parts[shard])
        mine = index // length % mesh[axis] == device[axis]
        mask &= mine.reshape([-1 if dim == shard.dim else 1 for dim in range(len(shape))])
    return mask


def check(run: Run, operator: Operator, strategy: Strategy, mesh: tuple[int, ...]) -> None:
    space = operator.space
    assert space is not None
    tensors = run.tensors(operator)
    expected = run.execute(operator, tensors)
    is_partial = bool(strategy.partial)
    joined: dict[tuple[int, tuple[int, ...]], torch.Tensor] = {}
    generator = torch.Generator().manual_seed(0)
    for device in product(*(range(size) for size in mesh)):
        mine = dict(tensors)
        seen = {name: torch.zeros_like(tensor, dtype=torch.bool) for name, tensor in tensors.items()}
        for access, spec in zip(space.reads, strategy.reads, strict=True):
            seen[access.tensor] |= inside(tensors[access.tensor].shape, spec, mesh, device)
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and name in {access.tensor for access in space.reads}:
                noise = torch.randn(tensor.shape, generator=generator) * 100
                mine[name] = torch.where(seen[name], tensor, torch.zeros_like(tensor) if is_partial else noise)
        added = _ADDED.get(operator.target)
        sums = [partial.axis for partial in strategy.partial]
        if added is not None and any(device[axis] for axis in sums):
            mine[space.reads[added].tensor] = torch.zeros_like(mine[space.reads[added].tensor])
        results = run.execute(operator, mine)[: _COUNTED.get(operator.target, len(strategy.writes))]
        for at, result in enumerate(results):
            axes = [partial.axis for partial in strategy.partial if partial.output == at]
            key = at, tuple(0 if axis in axes else index for axis, index in enumerate(device))
            joined[key] = joined[key] + result if key in joined else result
    for (at, device), result in joined.items():
        mask = inside(result.shape, strategy.writes[at], mesh, device)
        torch.testing.assert_close(
            result[mask],
            expected[at][mask],
            rtol=1e-3,
            atol=1e-4,
            msg=lambda text, at=at: f"{operator.target} {space}, {strategy.name}, output {at}: {text}",
        )


def is_joined(partial: PartialSum, strategy: Strategy, operator: Operator) -> bool:
    """Whether zeros in the place of what other devices have make the results partial sums."""
    space, loop = operator.space, strategy.loops[partial.axis]
    assert space is not None
    is_read = any(loop in access.loops for access in space.reads)
    return is_read and partial.how in (Reduction.SUM, Reduction.MEAN)


class Attention(nn.Module):
    """Fused attention, with key and value heads that are shared."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, width) for width in (16, 8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x).unflatten(-1, (-1, 4)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).square().mean()


class Indexing(nn.Module):
    """Reads and writes where indices say, also in its backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.linear(x).flatten(0, 1)
        places = torch.arange(16).view(4, 4) * 5 % 32
        picked = rows[places]
        best, chosen = picked.topk(4, dim=-1)
        spread = torch.zeros_like(picked).scatter(-1, chosen, best)
        added = torch.zeros_like(rows).index_add(0, places.flatten(), spread.flatten(0, 1))
        parts = rows[::2].square().sum() + rows.view(4, 8, 16)[:, 1].exp().sum() + rows[:, 4:8].cos().sum()
        return added.square().mean() + parts + rows.gather(1, chosen.flatten(0, 1).repeat(2, 1)).sin().sum()


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def tokens() -> torch.Tensor:
    return torch.randint(VOCAB, (2 * BATCH, SEQ), generator=torch.Generator().manual_seed(1))


MODELS = {
    "transformer": (Transformer, tokens()),
    "attention": (Attention, numbers(4, 8, 16)),
    "convolutions": (ConvNet, numbers(4, 3, 8, 8)),
    "block": (Block, numbers(4, 8, 16)),
    "indexing": (Indexing, numbers(4, 8, 16)),
}


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_every_strategy_computes_what_the_operator_does(model: str, mesh: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    make, given = MODELS[model]
    run = Run(make(), given)
    num_checked = 0
    for operator in {(op.target, str(op.space)): op for op in run.graph.operators}.values():
        if operator.space is None or operator.kind is OperatorKind.CREATE:
            continue
        for strategy in strategies(operator, run.graph.tensors_by_name(), mesh):
            if all(is_joined(partial, strategy, operator) for partial in strategy.partial):
                check(run, operator, strategy, mesh)
                num_checked += 1
    assert num_checked > 20


def test_heavy_operators_use_every_device_they_can() -> None:
    run = Run(Transformer(), tokens())
    for operator in run.graph.operators:
        found = strategies(operator, run.graph.tensors_by_name(), (2, 2))
        assert len(found) >= 1
        if operator.kind in (OperatorKind.MATMUL, OperatorKind.BATCHED_MATMUL):
            assert {prod((2, 2)[axis] for axis, loop in enumerate(s.loops) if loop) for s in found} == {4}
