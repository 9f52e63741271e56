"""Places the operators of one layer: which lead, which follow, and what each option costs. Pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from headway.core.graph import Operator, OperatorKind, TensorRole
from headway.core.iteration import Access
from headway.core.precision import Precision
from headway.core.sharding_spec import Shard, ShardingSpec
from headway.planner.intra.backward_placer import BackwardPlacer
from headway.planner.intra.chosen import Chosen, of_options, together
from headway.planner.intra.layer import Layer
from headway.planner.intra.layer_problem import LayerProblem
from headway.planner.intra.layer_state import Home, LayerState, partial_axes, possible, read_spec
from headway.planner.intra.loop_roles import LoopRole
from headway.planner.intra.mesh_costs import Delivery, MeshCosts
from headway.planner.intra.options import ShardingOptions
from headway.planner.intra.parameters import parameter_options
from headway.planner.intra.quantities import Floats, Quantity
from headway.planner.intra.strategies import HEAVY, Splitter, Strategy, strategies
from headway.planner.intra.training_graph import TrainingGraph

_LEADING = (*HEAVY, OperatorKind.EMBEDDING)
_FORWARD, _BACKWARD = Quantity.FORWARD_S, Quantity.BACKWARD_S

_Option = tuple[Strategy, ShardingSpec | None]  # with how the first result is scattered, where it is


def place_layer(
    steps: Sequence[TrainingGraph],
    layer: Layer,
    mesh: MeshCosts,
    precision: Precision,
    options: ShardingOptions,
    *,
    borrowed: Collection[str] = (),
) -> list[LayerProblem]:
    """Makes the problem of one layer on each of the meshes that `mesh` prices.

    Args:
        steps: the training step for each of the sizes of micro-batches that meshes are priced for.
        borrowed: parameters whose state an earlier layer of the same stage has.
    """
    placer = _Placer(LayerState(steps, mesh, precision, options), borrowed)
    training = placer.state.training
    placer.enter(layer.entering)
    for at in layer.forward:
        placer.forward(training.graph.operators[at])
    backward = BackwardPlacer(placer.state)
    for at in layer.backward:
        backward.place(training.graph.operators[at])
    placer.leave(layer.leaving)
    return list(placer.state.problems(mesh.shapes))


@dataclass(slots=True)
class _Placer:
    state: LayerState
    borrowed: Collection[str]

    # What enters and leaves

    def enter(self, names: Sequence[str]) -> None:
        if not names:
            return
        state = self.state
        patterns = self._patterns(names)
        state.entering, state.entered = state.add("entering", len(patterns)), frozenset(names)
        kept = np.zeros((len(patterns), state.mesh.num_meshes))
        for i, name in enumerate(names):
            specs = of_options(pattern[i] for pattern in patterns)
            state.homes[name] = Home(node=state.entering, specs=specs)
            kept += state.shard_bytes(name, specs)
        state.nodes[state.entering].kept_bytes = kept

    def leave(self, names: Sequence[str]) -> None:
        state = self.state
        if names:
            patterns = self._patterns(names)
            node = state.leaving = state.add("leaving", len(patterns))
            for i, name in enumerate(names):
                specs = of_options(pattern[i] for pattern in patterns)
                state.reshard_edge(name, node, specs, _FORWARD)
                if name in state.training.differentiated:
                    state.reshard_edge(name, node, specs, _BACKWARD)
        self._keep_activations()
        self._own_parameters()

    def _patterns(self, names: Sequence[str]) -> list[tuple[ShardingSpec, ...]]:
        """The specs of several tensors together: each mesh axis shards the same dim of all that have it, or none."""
        dims: list[int | None] = [None, *range(max(len(self.state.tensor(name).shape) for name in names))]
        found: dict[tuple[ShardingSpec, ...], None] = {}
        for picked in product(*([None] if size == 1 else dims for size in self.state.mesh.shape)):
            found[tuple(self._spec_with(name, picked) for name in names)] = None
        return list(found)

    def _spec_with(self, name: str, dims: Sequence[int | None]) -> ShardingSpec:
        shape, options, roles = self.state.tensor(name).shape, self.state.options, self.state.training.dim_roles
        axes: list[Shard | None] = [None] * len(dims)
        for axis, dim in enumerate(dims):
            if dim is not None and dim < len(shape) and options.allows(axis, roles.get((name, dim), LoopRole.MODEL)):
                axes[axis] = Shard(dim)
                if not ShardingSpec(tuple(axes)).fits(shape, self.state.mesh.shape):
                    axes[axis] = None
        return ShardingSpec(tuple(axes))

    # Forward operators

    def forward(self, operator: Operator) -> None:
        state = self.state
        reads = [name for name in operator.inputs if (home := state.homes.get(name)) and home.node is not None]
        has_parameter = any(map(self._is_parameter, operator.inputs))
        if operator.kind in HEAVY or (operator.kind in _LEADING and has_parameter):
            self._lead(operator)
        elif reads:
            self._follow(operator, max(reads, key=lambda name: (state.tensor(name).num_bytes, state.homes[name].node)))
        elif any(name in state.training.scaled for name in operator.outputs):
            self._lead(operator)
        else:
            self._alike(operator)

    def _lead(self, operator: Operator) -> None:
        options = of_options(self._options(operator, self.state.splitter(operator)))
        self._place(operator, self.state.add(operator.name, options.num_options), options)

    def _options(self, operator: Operator, splitter: Splitter) -> Iterator[_Option]:
        """The strategies, each with ways to leave what is summed: replicated, or scattered along rows."""
        minor = _minor_loops(operator)
        shape = self.state.tensor(operator.outputs[0]).shape
        choices = self.state.loops(operator, splitter)
        for strategy in strategies(operator, self.state.training.tensors, self.state.mesh.shape, choices):
            if minor & {loop for loop in strategy.loops if loop is not None}:
                continue
            yield strategy, None
            summed = partial_axes(strategy, 0)
            if summed:
                rows = self._row_shards(operator, splitter)
                for picked in product(*([None, *rows] for _ in summed)):
                    axes = list(strategy.writes[0].axes)
                    for axis, shard in zip(summed, picked, strict=True):
                        axes[axis] = shard
                    spec = ShardingSpec(tuple(axes))
                    if spec != strategy.writes[0] and spec.fits(shape, self.state.mesh.shape):
                        yield strategy, spec

    def _row_shards(self, operator: Operator, splitter: Splitter) -> list[Shard]:
        """How loops that no parameter has shard the first result; of an operator that reads no parameter none do."""
        assert operator.space is not None
        reads = [access for access in operator.space.reads if self._is_parameter(access.tensor)]
        weights = {loop for access in reads for loop in access.loops}
        return [shard for loop, shard in splitter.writes[0].items() if reads and loop not in weights]

    def _is_parameter(self, name: str) -> bool:
        return self.state.tensor(name).role is TensorRole.PARAMETER

    def _follow(self, operator: Operator, leader: str) -> None:
        """Splits the operator as the operand lies that it follows."""
        home = self.state.homes[leader]
        assert home.node is not None
        splitter = self.state.splitter(operator)
        reads = [access.tensor for access in operator.space.reads] if operator.space else []
        shards = splitter.reads[reads.index(leader)] if leader in reads else {}
        loop_of = {shard: loop for loop, shard in reversed(shards.items()) if loop in splitter.loops}
        choices = self.state.loops(operator, splitter)

        def following(spec: ShardingSpec) -> _Option:
            wanted = [None if shard is None else loop_of.get(shard) for shard in spec.axes]
            loops = [loop if loop in free else free[0] for loop, free in zip(wanted, choices, strict=True)]
            return possible(splitter, loops), None

        self._place(operator, home.node, home.specs.map(following))

    def _alike(self, operator: Operator) -> None:
        """Every device computes it as a whole."""
        state = self.state
        state.node_of[operator.name] = None
        strategy = state.splitter(operator).strategy(tuple(None for _ in state.mesh.shape))
        assert strategy is not None
        state.placed[operator.name] = None, of_options([strategy])
        whole = Home(node=None, specs=of_options([state.replicated]))
        state.homes |= dict.fromkeys(operator.outputs, whole)
        for name in operator.inputs:
            if state.tensor(name).role is TensorRole.PARAMETER:
                state.owned.setdefault(name, whole)

    def _place(self, operator: Operator, node: int, options: Chosen[_Option]) -> None:
        """Notes what a forward operator costs in each option of its node, and how its results lie."""
        state = self.state
        state.node_of[operator.name] = node
        chosen = options.map(lambda option: option[0])
        state.placed[operator.name] = node, chosen
        space = operator.space
        seconds = state.compute_s(operator, [strategy for strategy, _ in options.values])
        for k, (strategy, target) in enumerate(options.values):
            for i, access in enumerate(space.writes if space else ()):
                seconds[k] += self._join_s(access.tensor, i, strategy, target if i == 0 else None)
        state.nodes[node].quantities[_FORWARD] += options.pick(seconds)
        outputs = [access.tensor for access in space.writes] if space else []
        for name in operator.outputs:
            result = partial(self._result, outputs.index(name) if name in outputs else None)
            state.homes[name] = Home(node=node, specs=options.map(result))
        for i, access in enumerate(space.reads if space else ()):
            self._read(operator, access, node, chosen.map(partial(read_spec, i)))
        if space is None:
            for name in operator.inputs:
                whole = Access(tensor=name, dims=())
                self._read(operator, whole, node, chosen.map(lambda _: state.replicated))

    def _result(self, output: int | None, option: _Option) -> ShardingSpec:
        strategy, target = option
        if output is None:
            return self.state.replicated
        return target if output == 0 and target is not None else strategy.writes[output]

    def _join_s(self, name: str, index: int, strategy: Strategy, target: ShardingSpec | None) -> Floats | float:
        axes = partial_axes(strategy, index)
        if not axes:
            return 0.0
        spec = strategy.writes[index]
        return self.state.mesh.deliver_s(self.state.num_bytes(name), (spec, axes), target or spec)

    def _read(self, operator: Operator, access: Access, node: int, specs: Chosen[ShardingSpec]) -> None:
        name = access.tensor
        if (operator.name, name) in self.state.read_as:
            return
        self.state.read_as[operator.name, name] = specs
        if self.state.tensor(name).role is TensorRole.PARAMETER:
            self.state.owned.setdefault(name, Home(node=node, specs=specs))
        else:
            self.state.reshard_edge(name, node, specs, _FORWARD)

    # What is left when all are placed

    def _keep_activations(self) -> None:
        state = self.state
        alike = np.zeros(state.mesh.num_meshes)
        for name in state.training.graph.saved:
            home = state.homes.get(name)
            if home is None or name in state.entered:
                continue
            kept = state.shard_bytes(name, home.specs)
            if home.node is None:
                alike += kept[0]
            else:
                state.nodes[home.node].quantities[Quantity.ACTIVATION_BYTES] += kept
        if alike.any():
            state.nodes[state.add("alike", 1)].quantities[Quantity.ACTIVATION_BYTES] = alike

    def _own_parameters(self) -> None:
        state = self.state
        for name, home in state.owned.items():
            if name in self.borrowed:
                continue
            node = state.add(name, 1) if home.node is None else home.node
            giver, gradient = state.gradients.get(name, (None, None))
            pairs = together(home.specs, gradient) if gradient and giver == node else home.specs.map(_whole)
            is_trained = name in state.training.graph.trained
            options = [
                parameter_options(
                    state.tensor(name),
                    spec,
                    gradient=given if is_trained else None,
                    partial_axes=joined,
                    mesh=state.mesh,
                    precision=state.precision,
                    zero_stages=state.options.zero_stages,
                )
                for spec, (given, joined) in pairs.values
            ]
            meshes = np.arange(state.mesh.num_meshes)
            state.nodes[node].parameters[name] = np.stack(options, axis=2)[:, :, pairs.which, meshes]


def _whole(spec: ShardingSpec) -> tuple[ShardingSpec, Delivery]:
    """A parameter whose gradient lies as it does, with nothing to join."""
    return spec, (spec, ())


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
