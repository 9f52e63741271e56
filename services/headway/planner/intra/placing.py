"""Places the operators of one layer: which lead, which follow, and what each option costs. Pure."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headway.core.graph import Graph, Operator, OperatorKind, TensorRole, TensorSpec
from headway.core.iteration import Access, Reduction, loops_of
from headway.core.precision import Precision
from headway.core.sharding_spec import Shard, ShardingSpec
from headway.planner.intra.layer import Layer
from headway.planner.intra.layer_problem import LayerProblem, Node
from headway.planner.intra.mesh_costs import MeshCosts, is_moment
from headway.planner.intra.options import ShardingOptions
from headway.planner.intra.parameters import parameter_options
from headway.planner.intra.quantities import Floats, Quantity
from headway.planner.intra.strategies import HEAVY, Splitter, Strategy, strategies

_LEADING = (*HEAVY, OperatorKind.EMBEDDING)
_SECONDS = 2  # forward and backward
_UNDECIDED = "undecided"
_FORWARD, _BACKWARD = Quantity.FORWARD_S, Quantity.BACKWARD_S

T = TypeVar("T", bound=Hashable)
CostsOf = Callable[[Sequence[ShardingSpec], Sequence[T]], Floats]
_Given = tuple[ShardingSpec, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Home:
    """Where a tensor is decided about: its spec in each option of a node; of no node, one spec in all cases."""

    node: int | None
    specs: Sequence[ShardingSpec]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Gradient:
    """A parameter's gradient in each option of the operator's node."""

    specs: Sequence[ShardingSpec]
    partial_axes: Sequence[tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class TrainingGraph:
    """A captured training step with what is known of its gradients.

    Attributes:
        primals: of each gradient the tensor that it is the gradient of.
        scaled: tensors whose size goes with the batch.
        batch_loops: loops of each operator that run along examples.
    """

    graph: Graph
    tensors: Mapping[str, TensorSpec]
    primals: Mapping[str, str]
    scaled: frozenset[str]
    batch_loops: Mapping[str, frozenset[str]]

    @cached_property
    def differentiated(self) -> frozenset[str]:
        """Tensors that have a gradient."""
        return frozenset(self.primals.values())

    @cached_property
    def batch_dims(self) -> Mapping[str, int]:
        """Of each tensor that operators make the dim that examples run along, where one does."""
        return {
            access.tensor: dim
            for operator in self.graph.operators
            if operator.space is not None
            for access in operator.space.writes
            for dim, text in enumerate(access.dims)
            if (loops := loops_of(text)) and loops[0] in self.batch_loops.get(operator.name, ())
        }


def place_layer(
    training: TrainingGraph, layer: Layer, mesh: MeshCosts, precision: Precision, options: ShardingOptions
) -> LayerProblem:
    """Makes the problem of one layer on one mesh."""
    placer = _Placer(training, mesh, precision, options)
    placer.enter(layer.entering)
    for at in layer.forward:
        placer.forward(training.graph.operators[at])
    for at in layer.backward:
        placer.backward(training.graph.operators[at])
    return placer.problem(layer.leaving)


@dataclass(slots=True)
class _Placer:
    training: TrainingGraph
    mesh: MeshCosts
    precision: Precision
    options: ShardingOptions
    nodes: list[Node] = field(default_factory=list)
    edges: dict[tuple[int, int], Floats] = field(default_factory=dict)
    homes: dict[str, _Home] = field(default_factory=dict)  # of forward tensors
    node_of: dict[str, int | None] = field(default_factory=dict)  # of forward operators
    read_as: dict[tuple[str, str], list[ShardingSpec]] = field(default_factory=dict)  # by operator and tensor
    inner: dict[str, tuple[int, list[ShardingSpec]]] = field(default_factory=dict)  # inside one backward pass
    placed: dict[str, tuple[int | None, Sequence[Strategy]]] = field(default_factory=dict)
    owned: dict[str, _Home] = field(default_factory=dict)  # parameters, by the first operator that reads them
    gradients: dict[str, tuple[int, _Gradient]] = field(default_factory=dict)  # by the name of the parameter
    entering: int | None = None
    entered: frozenset[str] = frozenset()

    @property
    def _replicated(self) -> ShardingSpec:
        return ShardingSpec.replicated(len(self.mesh.shape))

    # What enters and leaves

    def enter(self, names: Sequence[str]) -> None:
        if not names:
            return
        patterns = self._patterns(names)
        self.entering, self.entered = self._add("entering", len(patterns)), frozenset(names)
        kept = np.zeros(len(patterns))
        for i, name in enumerate(names):
            specs = [pattern[i] for pattern in patterns]
            self.homes[name] = _Home(node=self.entering, specs=specs)
            kept += [self._tensor(name).num_bytes / spec.num_shards(self.mesh.shape) for spec in specs]
        self.nodes[self.entering].kept_bytes = kept

    def problem(self, leaving: Sequence[str]) -> LayerProblem:
        node = None
        if leaving:
            patterns = self._patterns(leaving)
            node = self._add("leaving", len(patterns))
            for i, name in enumerate(leaving):
                specs = [pattern[i] for pattern in patterns]
                self._reshard_edge(name, node, specs, _FORWARD)
                if name in self.training.differentiated:
                    self._reshard_edge(name, node, specs, _BACKWARD)
        self._keep_activations()
        self._own_parameters()
        return LayerProblem(
            mesh=self.mesh,
            nodes=self.nodes,
            edges=self.edges,
            entering=self.entering,
            leaving=node,
            strategies=self.placed,
            specs=self._specs(),
        )

    def _specs(self) -> dict[str, tuple[int | None, Sequence[ShardingSpec]]]:
        """How all tensors of the layer lie; gradients of activations as these do."""
        found = {name: (home.node, home.specs) for name, home in (*self.homes.items(), *self.owned.items())}
        found |= self.inner
        for name, primal in self.training.primals.items():
            if primal in self.homes:
                found[name] = self.homes[primal].node, self.homes[primal].specs
        return found

    def _patterns(self, names: Sequence[str]) -> list[tuple[ShardingSpec, ...]]:
        """The specs of several tensors together: each mesh axis shards the same dim of all that have it, or none."""
        shapes = [self._tensor(name).shape for name in names]
        dims: list[int | None] = [None, *range(max(len(shape) for shape in shapes))]
        found: dict[tuple[ShardingSpec, ...], None] = {}
        for picked in product(*([None] if size == 1 else dims for size in self.mesh.shape)):
            found[tuple(self._spec_with(name, picked) for name in names)] = None
        return list(found)

    def _spec_with(self, name: str, dims: Sequence[int | None]) -> ShardingSpec:
        shape, batch_dim = self._tensor(name).shape, self.training.batch_dims.get(name)
        axes: list[Shard | None] = [None] * len(dims)
        for axis, dim in enumerate(dims):
            role = self.options.axis_roles[axis]
            if dim is not None and dim < len(shape) and role.allows(is_batch=dim == batch_dim):
                axes[axis] = Shard(dim)
                if not ShardingSpec(tuple(axes)).fits(shape, self.mesh.shape):
                    axes[axis] = None
        return ShardingSpec(tuple(axes))

    # Forward operators

    def forward(self, operator: Operator) -> None:
        reads = [name for name in operator.inputs if (home := self.homes.get(name)) and home.node is not None]
        has_parameter = any(self._tensor(name).role is TensorRole.PARAMETER for name in operator.inputs)
        if operator.kind in HEAVY or (operator.kind in _LEADING and has_parameter):
            self._lead(operator)
        elif reads:
            self._follow(operator, max(reads, key=lambda name: (self._tensor(name).num_bytes, self.homes[name].node)))
        elif any(name in self.training.scaled for name in operator.outputs):
            self._lead(operator)
        else:
            self._alike(operator)

    def _lead(self, operator: Operator) -> None:
        splitter = Splitter(operator, self.training.tensors, self.mesh.shape)
        options = list(self._options(operator, splitter))
        node = self._add(operator.name, len(options))
        self._place(operator, node, [strategy for strategy, _ in options], [spec for _, spec in options])

    def _options(self, operator: Operator, splitter: Splitter) -> Iterator[tuple[Strategy, ShardingSpec | None]]:
        """The strategies, each with ways to leave what is summed: replicated, or scattered along rows."""
        minor = _minor_loops(operator)
        choices = self._loops(operator, splitter)
        for strategy in strategies(operator, self.training.tensors, self.mesh.shape, choices):
            if minor & {loop for loop in strategy.loops if loop is not None}:
                continue
            yield strategy, None
            summed = _partial_axes(strategy, 0)
            if summed:
                rows = self._row_shards(operator, splitter)
                for picked in product(*([None, *rows] for _ in summed)):
                    axes = list(strategy.writes[0].axes)
                    for axis, shard in zip(summed, picked, strict=True):
                        axes[axis] = shard
                    spec = ShardingSpec(tuple(axes))
                    if spec != strategy.writes[0] and spec.fits(
                        self._tensor(operator.outputs[0]).shape, self.mesh.shape
                    ):
                        yield strategy, spec

    def _row_shards(self, operator: Operator, splitter: Splitter) -> list[Shard]:
        """How loops that no parameter has shard the first result."""
        assert operator.space is not None
        weights = {
            loop
            for access in operator.space.reads
            if self._tensor(access.tensor).role is TensorRole.PARAMETER
            for loop in access.loops
        }
        return [shard for loop, shard in splitter.writes[0].items() if loop not in weights]

    def _follow(self, operator: Operator, leader: str) -> None:
        """Splits the operator as the operand lies that it follows."""
        home = self.homes[leader]
        assert home.node is not None
        splitter = Splitter(operator, self.training.tensors, self.mesh.shape)
        reads = [access.tensor for access in operator.space.reads] if operator.space else []
        shards = splitter.reads[reads.index(leader)] if leader in reads else {}
        loop_of = {shard: loop for loop, shard in reversed(shards.items()) if loop in splitter.loops}
        choices = self._loops(operator, splitter)
        made: dict[ShardingSpec, Strategy] = {}
        for spec in home.specs:
            if spec not in made:
                wanted = [None if shard is None else loop_of.get(shard) for shard in spec.axes]
                loops = [loop if loop in free else free[0] for loop, free in zip(wanted, choices, strict=True)]
                made[spec] = _possible(splitter, loops)
        self._place(operator, home.node, [made[spec] for spec in home.specs])

    def _alike(self, operator: Operator) -> None:
        """Every device computes it as a whole."""
        self.node_of[operator.name] = None
        nothing = tuple(None for _ in self.mesh.shape)
        strategy = Splitter(operator, self.training.tensors, self.mesh.shape).strategy(nothing)
        assert strategy is not None
        self.placed[operator.name] = None, [strategy]
        for name in operator.outputs:
            self.homes[name] = _Home(node=None, specs=[self._replicated])
        for name in operator.inputs:
            if self._tensor(name).role is TensorRole.PARAMETER:
                self.owned.setdefault(name, _Home(node=None, specs=[self._replicated]))

    def _place(
        self,
        operator: Operator,
        node: int,
        chosen: list[Strategy],
        scattered: Sequence[ShardingSpec | None] | None = None,
    ) -> None:
        """Notes what a forward operator costs in each option of its node, and how its results lie."""
        self.node_of[operator.name] = node
        self.placed[operator.name] = node, chosen
        quantities = self.nodes[node].quantities
        found: dict[tuple[Strategy, ShardingSpec | None], float] = {}
        targets = scattered or [None] * len(chosen)
        for k, (strategy, target) in enumerate(zip(chosen, targets, strict=True)):
            key = strategy, target
            if key not in found:
                found[key] = self._compute_s(operator, strategy) + sum(
                    self._join_s(access.tensor, i, strategy, target if i == 0 else None)
                    for i, access in enumerate(operator.space.writes if operator.space else ())
                )
            quantities[_FORWARD, k] += found[key]
        space = operator.space
        outputs = [access.tensor for access in space.writes] if space else []
        for name in operator.outputs:
            i = outputs.index(name) if name in outputs else None
            specs = [self._replicated if i is None else strategy.writes[i] for strategy in chosen]
            if i == 0:
                specs = [target or spec for target, spec in zip(targets, specs, strict=True)]
            self.homes[name] = _Home(node=node, specs=specs)
        for i, access in enumerate(space.reads if space else ()):
            self._read(operator, access, node, [strategy.reads[i] for strategy in chosen])
        if space is None:
            for name in operator.inputs:
                whole = Access(tensor=name, dims=())
                self._read(operator, whole, node, [self._replicated] * len(chosen))

    def _read(self, operator: Operator, access: Access, node: int, specs: list[ShardingSpec]) -> None:
        name = access.tensor
        if (operator.name, name) in self.read_as:
            return
        self.read_as[operator.name, name] = specs
        if self._tensor(name).role is TensorRole.PARAMETER:
            self.owned.setdefault(name, _Home(node=node, specs=specs))
        else:
            self._reshard_edge(name, node, specs, _FORWARD)

    # Backward operators

    def backward(self, operator: Operator) -> None:
        primals = {self.training.primals.get(name) for name in (*operator.inputs, *operator.outputs)}
        if len(primals) == 1 and (primal := next(iter(primals))) in self.homes:
            self._accumulate(operator, self.homes[primal])
            return
        node = self.node_of.get(operator.forward)
        if node is None:
            return  # every device does it as a whole, or another layer's
        splitter = Splitter(operator, self.training.tensors, self.mesh.shape)
        hints = [self._hints(operator, name, node) for name in operator.inputs]
        wanted = [self._wanted(operator, name, node) for name in operator.outputs]
        made: dict[tuple[ShardingSpec | None, ...], Strategy] = {}
        known: dict[tuple[object, ...], str | None] = {}
        chosen = []
        for profile in zip(*hints, *wanted, strict=True):
            if profile not in made:
                made[profile] = self._best(operator, splitter, profile, known)
            chosen.append(made[profile])
        self.placed[operator.name] = node, chosen
        quantities = self.nodes[node].quantities
        times = {strategy: self._compute_s(operator, strategy) for strategy in dict.fromkeys(chosen)}
        quantities[_BACKWARD] += [times[strategy] for strategy in chosen]
        space = operator.space
        for i, access in enumerate(space.reads if space else ()):
            self._read_backward(access.tensor, node, [strategy.reads[i] for strategy in chosen])
        for i, access in enumerate(space.writes if space else ()):
            self._give(access.tensor, node, i, chosen)

    def _accumulate(self, operator: Operator, home: _Home) -> None:
        """Adds gradients of one tensor, which lie as it does."""
        if home.node is None:
            return
        splitter = Splitter(operator, self.training.tensors, self.mesh.shape)
        made: dict[ShardingSpec, Strategy] = {}
        for spec in home.specs:
            if spec not in made:
                loop_of = {shard: loop for loop, shard in splitter.writes[0].items()} if splitter.writes else {}
                made[spec] = _possible(splitter, [None if s is None else loop_of.get(s) for s in spec.axes])
        self.placed[operator.name] = home.node, [made[spec] for spec in home.specs]
        times = {spec: self._compute_s(operator, strategy) for spec, strategy in made.items()}
        self.nodes[home.node].quantities[_BACKWARD] += [times[spec] for spec in home.specs]

    def _hints(self, operator: Operator, name: str, node: int) -> Sequence[ShardingSpec | None]:
        """How an operand of a backward operator lies in each option of its node, as far as the node decides that."""
        if name in self.inner:
            return self.inner[name][1]
        name = self.training.primals.get(name, name)
        if (operator.forward, name) in self.read_as:
            return self.read_as[operator.forward, name]
        home = self.homes.get(name) or self.owned.get(name)
        if home is not None and home.node == node:
            return home.specs
        return [None] * self.nodes[node].num_options

    def _wanted(self, operator: Operator, name: str, node: int) -> Sequence[ShardingSpec | None]:
        """How a result of a backward operator should lie."""
        primal = self.training.primals.get(name)
        if primal is None:
            return [None] * self.nodes[node].num_options
        return self._hints(operator, name, node)

    def _best(
        self,
        operator: Operator,
        splitter: Splitter,
        profile: Sequence[ShardingSpec | None],
        known: dict[tuple[object, ...], str | None],
    ) -> Strategy:
        """The split whose operands and results lie best, chosen axis by axis.

        Args:
            profile: how the operands lie and the results should lie, as far as that is decided.
            known: loops that were chosen before, which this adds to.
        """
        loops: list[str | None] = []
        for axis, candidates in enumerate(self._loops(operator, splitter)):
            shards = tuple(_UNDECIDED if spec is None else spec.axes[axis] for spec in profile)
            key = axis, *shards
            if key not in known:
                known[key] = min(candidates, key=lambda loop: self._along_s(operator, splitter, shards, loop, axis))
            loops.append(known[key])
        return _possible(splitter, loops)

    def _along_s(
        self,
        operator: Operator,
        splitter: Splitter,
        shards: Sequence[Shard | str | None],
        loop: str | None,
        axis: int,
    ) -> float:
        """Seconds, roughly, of an operator that splits a loop along one axis, with what has to be moved along it."""
        space = operator.space
        if space is None:
            return 0.0
        seconds = self._compute_s(operator, None) / (1 if loop is None else self.mesh.shape[axis])
        lies = dict(zip((*operator.inputs, *operator.outputs), shards, strict=True))
        for access, parts in zip(space.reads, splitter.reads, strict=True):
            seconds += self._moved_s(access.tensor, lies[access.tensor], parts.get(loop or ""), axis)
        for access, parts in zip(space.writes, splitter.writes, strict=True):
            how = access.reduced.get(loop or "")
            if how is None:
                seconds += self._moved_s(access.tensor, parts.get(loop or ""), lies[access.tensor], axis)
            elif how is not Reduction.MOMENTS:
                seconds += self._summed_s(access, axis)
        return seconds

    def _moved_s(self, name: str, source: Shard | str | None, target: Shard | str | None, axis: int) -> float:
        """Seconds, roughly, to bring a tensor along one axis from one shard to another."""
        if source in (target, None, _UNDECIDED) or target == _UNDECIDED:
            return 0.0
        size = self.mesh.shape[axis]
        part = self._tensor(name).num_bytes / size
        if target is None:
            return self.mesh.collective_s("all_gather", part * (size - 1), axis=axis)
        return self.mesh.collective_s("all_to_all", part * (size - 1) / size, axis=axis)

    def _summed_s(self, access: Access, axis: int) -> float:
        """Seconds, roughly, to join partial results; those of parameters are joined once an iteration."""
        primal = self.training.primals.get(access.tensor)
        if primal is not None and self._tensor(primal).role is TensorRole.PARAMETER:
            return 0.0
        size = self.mesh.shape[axis]
        sent = self._tensor(access.tensor).num_bytes * (size - 1) / size
        return self.mesh.collective_s("reduce_scatter", sent, axis=axis)

    def _read_backward(self, name: str, node: int, specs: list[ShardingSpec]) -> None:
        if name in self.inner:
            self._reshard_inside(name, node, self.inner[name][1], specs)
            return
        primal = self.training.primals.get(name, name)
        if primal in self.owned:
            home = self.owned[primal]
            if home.node == node:
                self._reshard_inside(primal, node, home.specs, specs)
        else:
            self._reshard_edge(primal, node, specs, _BACKWARD)

    def _reshard_inside(
        self, name: str, node: int, sources: Sequence[ShardingSpec], targets: Sequence[ShardingSpec]
    ) -> None:
        num_bytes = self._tensor(name).num_bytes
        home = _Home(node=node, specs=sources)
        self._edge(home, node, _BACKWARD, targets, partial(self.mesh.reshardings_s, num_bytes))

    def _give(self, name: str, node: int, index: int, chosen: list[Strategy]) -> None:
        """Brings a gradient to where it belongs."""
        primal = self.training.primals.get(name)
        specs = [strategy.writes[index] for strategy in chosen]
        joined = [_partial_axes(strategy, index) for strategy in chosen]
        num_bytes = self._tensor(name).num_bytes
        if primal is not None and self._tensor(primal).role is TensorRole.PARAMETER:
            self.gradients[primal] = node, _Gradient(specs=specs, partial_axes=joined)
            self.inner[name] = node, specs
        elif primal in self.homes:

            def deliveries_s(wanted: Sequence[ShardingSpec], given: Sequence[_Given]) -> Floats:
                return np.array(
                    [[self.mesh.deliver_s(num_bytes, *lies, target) for lies in given] for target in wanted]
                )

            self._edge(self.homes[primal], node, _BACKWARD, list(zip(specs, joined, strict=True)), deliveries_s)
        else:
            self.inner[name] = node, specs
            self.nodes[node].quantities[_BACKWARD] += [
                self.mesh.deliver_s(num_bytes, spec, axes, spec) for spec, axes in zip(specs, joined, strict=True)
            ]

    # What is left when all are placed

    def _keep_activations(self) -> None:
        alike = 0.0
        for name in self.training.graph.saved:
            home = self.homes.get(name)
            if home is None or name in self.entered:
                continue
            kept = [self._tensor(name).num_bytes / spec.num_shards(self.mesh.shape) for spec in home.specs]
            if home.node is None:
                alike += kept[0]
            else:
                self.nodes[home.node].quantities[Quantity.ACTIVATION_BYTES] += kept
        if alike:
            self.nodes[self._add("alike", 1)].quantities[Quantity.ACTIVATION_BYTES] = alike

    def _own_parameters(self) -> None:
        for name, home in self.owned.items():
            node = self._add(name, 1) if home.node is None else home.node
            giver, gradient = self.gradients.get(name, (None, None))
            options = []
            known: dict[tuple[object, ...], Floats] = {}
            for k, spec in enumerate(home.specs):
                given, joined = (
                    (spec, ())
                    if gradient is None or giver != node
                    else (
                        gradient.specs[k],
                        gradient.partial_axes[k],
                    )
                )
                key = spec, given, joined
                if key not in known:
                    known[key] = parameter_options(
                        self._tensor(name),
                        spec,
                        gradient=given if name in self.training.graph.trained else None,
                        partial_axes=joined,
                        mesh=self.mesh,
                        precision=self.precision,
                        zero_stages=self.options.zero_stages,
                    )
                options.append(known[key])
            self.nodes[node].parameters[name] = np.stack(options, axis=-1)

    # Parts of the above

    def _add(self, name: str, num_options: int) -> int:
        self.nodes.append(Node(name=name, quantities=np.zeros((len(Quantity), num_options))))
        return len(self.nodes) - 1

    def _tensor(self, name: str) -> TensorSpec:
        return self.training.tensors[name]

    def _loops(self, operator: Operator, splitter: Splitter) -> list[list[str | None]]:
        """What each mesh axis may split of an operator."""
        batch_loops = self.training.batch_loops.get(operator.name, frozenset())
        return self.options.loops(operator, splitter.loops, batch_loops, self.training.tensors, self.mesh.shape)

    def _compute_s(self, operator: Operator, strategy: Strategy | None) -> float:
        loops = (None,) * len(self.mesh.shape) if strategy is None else strategy.loops
        seconds = self.mesh.compute_s(operator, self.training.tensors, loops)
        if strategy is not None and any(is_moment(part) for part in strategy.partial):
            seconds += self.mesh.moments_s(operator, self.training.tensors, strategy)
        return seconds

    def _join_s(self, name: str, index: int, strategy: Strategy, target: ShardingSpec | None) -> float:
        axes = _partial_axes(strategy, index)
        if not axes:
            return 0.0
        spec = strategy.writes[index]
        return self.mesh.deliver_s(self._tensor(name).num_bytes, spec, axes, target or spec)

    def _reshard_edge(self, name: str, node: int, specs: Sequence[ShardingSpec], quantity: Quantity) -> None:
        home = self.homes.get(name)
        if home is None or home.node is None:
            return
        num_bytes = self._tensor(name).num_bytes
        self._edge(home, node, quantity, specs, partial(self.mesh.reshardings_s, num_bytes))

    def _edge(self, home: _Home, node: int, quantity: Quantity, lies: Sequence[T], costs_s: CostsOf[T]) -> None:
        """Adds the cost of a tensor's way between the node that decides about it and another, or within one.

        Args:
            lies: how it lies in each option of the other node.
            costs_s: [specs, ways]; from each of its different specs and each different way that it lies there.
        """
        assert home.node is not None
        sources, source_of = _distinct(home.specs)
        targets, target_of = _distinct(lies)
        seconds = costs_s(sources, targets)
        if home.node == node:
            self.nodes[node].quantities[quantity] += seconds[source_of, target_of]
            return
        key = min(home.node, node), max(home.node, node)
        if key not in self.edges:
            self.edges[key] = np.zeros((_SECONDS, *(self.nodes[n].num_options for n in key)))
        matrix = seconds[np.ix_(source_of, target_of)]
        self.edges[key][quantity] += matrix if home.node < node else matrix.T


def _distinct(items: Sequence[T]) -> tuple[list[T], NDArray[np.intp]]:
    """The different ones, and for each item which of them it is."""
    numbers: dict[T, int] = {}
    which = np.array([numbers.setdefault(item, len(numbers)) for item in items])
    return list(numbers), which


def _possible(splitter: Splitter, loops: Sequence[str | None]) -> Strategy:
    """The strategy that splits these loops, or as many of them as divide."""
    left = list(loops)
    for axis in reversed(range(len(left))):
        if (strategy := splitter.strategy(tuple(left))) is not None:
            return strategy
        left[axis] = None
    strategy = splitter.strategy(tuple(left))
    assert strategy is not None, "every operator can be computed on each device"
    return strategy


def _partial_axes(strategy: Strategy, output: int) -> tuple[int, ...]:
    """The mesh axes along which a result has to be joined."""
    return tuple(part.axis for part in strategy.partial if part.output == output and not is_moment(part))


def _minor_loops(operator: Operator) -> set[str]:
    """Loops that are summed and run along the same operands as a major one: to split them gives nothing new."""
    space = operator.space
    if space is None:
        return set()
    minor, seen = set(), set()
    for dim in space.dims:
        if not any(dim.name in access.reduced for access in space.writes):
            continue
        along = tuple(dim.name in access.loops for access in space.reads)
        if along in seen:
            minor.add(dim.name)
        seen.add(along)
    return minor
