"""A layer's problem while it is made: nodes, edges, and how tensors lie in each option. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from headway.core.graph import Operator, TensorSpec
from headway.core.precision import Precision
from headway.core.sharding_spec import ShardingSpec
from headway.planner.intra.chosen import Chosen, of_options
from headway.planner.intra.layer_problem import LayerProblem, Node
from headway.planner.intra.mesh_costs import Delivery, MeshCosts, Work, is_moment
from headway.planner.intra.options import ShardingOptions
from headway.planner.intra.quantities import Floats, Quantity
from headway.planner.intra.strategies import Splitter, Strategy
from headway.planner.intra.training_graph import TrainingGraph

_SECONDS = 2  # forward and backward

T = TypeVar("T")
CostsOf = Callable[[Sequence[ShardingSpec], Sequence[T]], Floats]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Home:
    """Where a tensor is decided about: its spec in each option of a node; of no node, one spec in all cases."""

    node: int | None
    specs: Chosen[ShardingSpec]


@dataclass(slots=True)
class LayerState:
    """Attributes:
    steps: the training step for each size of micro-batches; what may be split how is the same for all of them.
    homes: of forward tensors.
    node_of: of forward operators.
    read_as: how an operator reads a tensor, by their names.
    inner: tensors inside the backward pass of one forward operator, with its node.
    placed: strategies of operators.
    owned: parameters, by the first operator that reads them.
    gradients: by the name of the parameter: the node, and how it is given.
    bytes_of: whole tensors, [meshes].
    entered: tensors that enter the layer.
    """

    steps: Sequence[TrainingGraph]
    mesh: MeshCosts
    precision: Precision
    options: ShardingOptions
    nodes: list[Node] = field(default_factory=list)
    edges: dict[tuple[int, int], Floats] = field(default_factory=dict)
    homes: dict[str, Home] = field(default_factory=dict)
    node_of: dict[str, int | None] = field(default_factory=dict)
    read_as: dict[tuple[str, str], Chosen[ShardingSpec]] = field(default_factory=dict)
    inner: dict[str, tuple[int, Chosen[ShardingSpec]]] = field(default_factory=dict)
    placed: dict[str, tuple[int | None, Chosen[Strategy]]] = field(default_factory=dict)
    owned: dict[str, Home] = field(default_factory=dict)
    gradients: dict[str, tuple[int, Chosen[Delivery]]] = field(default_factory=dict)
    bytes_of: dict[str, Floats] = field(default_factory=dict)
    entering: int | None = None
    entered: frozenset[str] = frozenset()
    leaving: int | None = None

    @property
    def replicated(self) -> ShardingSpec:
        return ShardingSpec.replicated(len(self.mesh.shape))

    @property
    def training(self) -> TrainingGraph:
        """The step for the first of the sizes."""
        return self.steps[0]

    def tensor(self, name: str) -> TensorSpec:
        return self.training.tensors[name]

    def num_bytes(self, name: str) -> Floats:
        """[meshes]: of a whole tensor."""
        if name not in self.bytes_of:
            sizes = np.array([step.tensors[name].num_bytes for step in self.steps], np.float64)
            self.bytes_of[name] = sizes[self.mesh.size_of]
        return self.bytes_of[name]

    def works(self, operator: Operator) -> list[Work]:
        """An operator for each size of micro-batches."""
        return [(step.operators[operator.name], step.tensors) for step in self.steps]

    def add(self, name: str, num_options: int) -> int:
        """Adds a node; returns its number."""
        shape = len(Quantity), num_options, self.mesh.num_meshes
        self.nodes.append(Node(name=name, quantities=np.zeros(shape)))
        return len(self.nodes) - 1

    def undecided(self, node: int) -> Chosen[None]:
        return of_options([None] * self.nodes[node].num_options)

    def splitter(self, operator: Operator) -> Splitter:
        return Splitter(operator, self.training.tensors, self.mesh.shape)

    def loops(self, operator: Operator, splitter: Splitter) -> list[list[str | None]]:
        """What each mesh axis may split of an operator."""
        return self.options.loops(operator, splitter.loops, self.training, self.mesh.shape)

    def compute_s(self, operator: Operator, strategies: Sequence[Strategy]) -> Floats:
        """[strategies, meshes]: seconds of computing, with the sums that come before it."""
        found = np.zeros((len(strategies), self.mesh.num_meshes))
        works = self.works(operator)
        for k, strategy in enumerate(strategies):
            found[k] = self.mesh.compute_s(works, strategy.loops)
            if any(is_moment(part) for part in strategy.partial):
                found[k] += self.mesh.moments_s(works, strategy)
        return found

    def shard_bytes(self, name: str, specs: Chosen[ShardingSpec]) -> Floats:
        """[options, meshes]: of a tensor on each device."""
        parts = np.ones((len(specs.values), self.mesh.num_meshes))
        for k, spec in enumerate(specs.values):
            parts[k] = spec.num_shards(self.mesh.sizes)
        return specs.pick(self.num_bytes(name) / parts)

    def reshard_edge(self, name: str, node: int, specs: Chosen[ShardingSpec], quantity: Quantity) -> None:
        """Adds what it takes to bring a forward tensor from its home to how a node has it."""
        home = self.homes.get(name)
        if home is not None and home.node is not None:
            self.edge(home, node, quantity, specs, partial(self.mesh.reshardings_s, self.num_bytes(name)))

    def edge(self, home: Home, node: int, quantity: Quantity, lies: Chosen[T], costs_s: CostsOf[T]) -> None:
        """Adds the cost of a tensor's way between the node that decides about it and another, or within one.

        Args:
            lies: how it lies in each option of the other node.
            costs_s: [specs, ways, meshes]; from each of its specs and each way that it lies there.
        """
        assert home.node is not None
        seconds = costs_s(home.specs.values, lies.values)
        meshes = np.arange(self.mesh.num_meshes)
        if home.node == node:
            self.nodes[node].quantities[quantity] += seconds[home.specs.which, lies.which, meshes]
            return
        key = min(home.node, node), max(home.node, node)
        if key not in self.edges:
            sizes = (self.nodes[n].num_options for n in key)
            self.edges[key] = np.zeros((_SECONDS, *sizes, self.mesh.num_meshes))
        matrix = seconds[home.specs.which[:, None], lies.which[None], meshes]
        self.edges[key][quantity] += matrix if home.node < node else matrix.swapaxes(0, 1)

    def problems(self, shapes: Sequence[tuple[int, ...]]) -> Iterator[LayerProblem]:
        """The problem on each of the meshes."""
        specs = self._specs()
        for mesh, shape in enumerate(shapes):
            yield LayerProblem(
                mesh_shape=shape,
                nodes=[_on(node, mesh) for node in self.nodes],
                edges={key: np.ascontiguousarray(seconds[..., mesh]) for key, seconds in self.edges.items()},
                entering=self.entering,
                leaving=self.leaving,
                strategies={name: (node, chosen.on(mesh)) for name, (node, chosen) in self.placed.items()},
                specs={name: (node, chosen.on(mesh)) for name, (node, chosen) in specs.items()},
            )

    def _specs(self) -> dict[str, tuple[int | None, Chosen[ShardingSpec]]]:
        """How all tensors of the layer lie; gradients of activations as these do."""
        found: dict[str, tuple[int | None, Chosen[ShardingSpec]]] = {
            name: (home.node, home.specs) for name, home in (*self.homes.items(), *self.owned.items())
        }
        found |= self.inner
        for name, primal in self.training.primals.items():
            if primal in self.homes:
                found[name] = self.homes[primal].node, self.homes[primal].specs
        return found


def possible(splitter: Splitter, loops: Sequence[str | None]) -> Strategy:
    """The strategy that splits these loops, or as many of them as divide."""
    left = list(loops)
    for axis in reversed(range(len(left))):
        if (strategy := splitter.strategy(tuple(left))) is not None:
            return strategy
        left[axis] = None
    strategy = splitter.strategy(tuple(left))
    assert strategy is not None, "every operator can be computed on each device"
    return strategy


def read_spec(operand: int, strategy: Strategy) -> ShardingSpec:
    return strategy.reads[operand]


def partial_axes(strategy: Strategy, output: int) -> tuple[int, ...]:
    """The mesh axes along which a result has to be joined."""
    return tuple(part.axis for part in strategy.partial if part.output == output and not is_moment(part))


def _on(node: Node, mesh: int) -> Node:
    """A node on one of the meshes."""
    return Node(
        name=node.name,
        quantities=np.ascontiguousarray(node.quantities[..., mesh]),
        parameters={name: np.ascontiguousarray(options[..., mesh]) for name, options in node.parameters.items()},
        kept_bytes=None if node.kept_bytes is None else node.kept_bytes[:, mesh],
    )
