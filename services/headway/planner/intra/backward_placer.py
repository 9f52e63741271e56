"""Places the backward operators of a layer: each is split as suits its operands and results best. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from headway.core.graph import Operator, TensorRole
from headway.core.iteration import Access, Reduction
from headway.core.sharding_spec import Shard, ShardingSpec
from headway.planner.intra.chosen import Chosen, Indices, without_meshes
from headway.planner.intra.layer_state import Home, LayerState, partial_axes, possible, read_spec
from headway.planner.intra.quantities import Floats, Quantity
from headway.planner.intra.strategies import Splitter, Strategy

_UNDECIDED = "undecided"
_BACKWARD = Quantity.BACKWARD_S

_Lies = Shard | str | None  # along one axis: a shard, whole or not decided


@dataclass(slots=True)
class BackwardPlacer:
    """Places backward operators in the order of the graph."""

    state: LayerState

    def place(self, operator: Operator) -> None:
        primals = self.state.training.primals
        of = {primals.get(name) for name in (*operator.inputs, *operator.outputs)}
        if len(of) == 1 and (primal := next(iter(of))) in self.state.homes:
            self._accumulate(operator, self.state.homes[primal])
            return
        if len(of) == 1 and primal in self.state.owned:
            self._add_up(operator, self.state.owned[primal])
            return
        node = self.state.node_of.get(operator.forward)
        if node is None:
            return  # every device does it as a whole, or another layer's
        chosen = self._best(operator, node)
        self.state.placed[operator.name] = node, chosen
        self.state.nodes[node].quantities[_BACKWARD] += chosen.pick(self.state.compute_s(operator, chosen.values))
        space = operator.space
        for i, access in enumerate(space.reads if space else ()):
            self._read(access.tensor, node, chosen.map(partial(read_spec, i)))
        for i, access in enumerate(space.writes if space else ()):
            self._give(access.tensor, node, i, chosen)

    def _accumulate(self, operator: Operator, home: Home) -> None:
        """Adds gradients of one tensor, which lie as it does."""
        if home.node is None:
            return
        splitter = self.state.splitter(operator)
        loop_of = {shard: loop for loop, shard in splitter.writes[0].items()} if splitter.writes else {}
        chosen = home.specs.map(
            lambda spec: possible(splitter, [None if shard is None else loop_of.get(shard) for shard in spec.axes])
        )
        self.state.placed[operator.name] = home.node, chosen
        self.state.nodes[home.node].quantities[_BACKWARD] += chosen.pick(self.state.compute_s(operator, chosen.values))

    def _add_up(self, operator: Operator, home: Home) -> None:
        """Adds up gradients of a parameter, which are joined once an iteration: no work of its own, as all gradients
        are added to those of earlier micro-batches."""
        if home.node is None:
            return
        splitter = self.state.splitter(operator)
        loop_of = {shard: loop for loop, shard in splitter.writes[0].items()} if splitter.writes else {}
        self.state.placed[operator.name] = (
            home.node,
            home.specs.map(
                lambda spec: possible(splitter, [None if shard is None else loop_of.get(shard) for shard in spec.axes])
            ),
        )
        self.state.inner |= dict.fromkeys(operator.outputs, (home.node, home.specs))

    # The choice of loops

    def _best(self, operator: Operator, node: int) -> Chosen[Strategy]:
        """The split whose operands and results lie best, chosen axis by axis, in each option of the node."""
        splitter = self.state.splitter(operator)
        lies = [self._hints(operator, name, node) for name in operator.inputs]
        lies += [self._wanted(operator, name, node) for name in operator.outputs]
        num_options = self.state.nodes[node].num_options
        choices = self.state.loops(operator, splitter)
        codes = np.zeros((num_options, 1), np.intp)
        for axis, loops in enumerate(choices):
            codes = codes * len(loops) + self._along_axis(operator, splitter, lies, loops, axis, num_options)
        found, which = np.unique(without_meshes(codes), return_inverse=True)
        made = []
        for code in found:
            at = np.unravel_index(code, [len(loops) for loops in choices])
            made.append(possible(splitter, [loops[i] for loops, i in zip(choices, at, strict=True)]))
        return Chosen(made, which.reshape(without_meshes(codes).shape)).map(lambda strategy: strategy)

    def _along_axis(
        self,
        operator: Operator,
        splitter: Splitter,
        lies: Sequence[Chosen[ShardingSpec] | Chosen[None]],
        loops: Sequence[str | None],
        axis: int,
        num_options: int,
    ) -> Indices:
        """[options, meshes]: the loop to split along one axis, by its index."""
        along: list[Chosen[_Lies]] = [
            each.map(lambda spec: _UNDECIDED if spec is None else spec.axes[axis]) for each in lies
        ]
        if len(loops) == 1:
            return np.zeros((num_options, 1), np.intp)
        codes = np.zeros((num_options, 1), np.intp)
        for each in along:
            codes = codes * len(each.values) + each.which
        found, which = np.unique(codes, return_inverse=True)
        best = np.zeros((len(found), self.state.mesh.num_meshes), np.intp)
        whole_s = self.state.mesh.compute_s(self.state.works(operator), [None] * len(self.state.mesh.shape))
        for k, code in enumerate(found):
            at = np.unravel_index(code, [len(each.values) for each in along])
            shards = [each.values[i] for each, i in zip(along, at, strict=True)]
            costs_s = [self._along_s(operator, splitter, shards, loop, axis, whole_s) for loop in loops]
            best[k] = np.argmin(costs_s, axis=0)
        return np.asarray(best[which.reshape(codes.shape), np.arange(best.shape[1])])

    def _hints(self, operator: Operator, name: str, node: int) -> Chosen[ShardingSpec] | Chosen[None]:
        """How an operand of a backward operator lies in each option of its node, as far as the node decides that."""
        state = self.state
        if name in state.inner:
            return state.inner[name][1]
        name = state.training.primals.get(name, name)
        if (operator.forward, name) in state.read_as:
            return state.read_as[operator.forward, name]
        home = state.homes.get(name) or state.owned.get(name)
        return home.specs if home is not None and home.node == node else state.undecided(node)

    def _wanted(self, operator: Operator, name: str, node: int) -> Chosen[ShardingSpec] | Chosen[None]:
        """How a result of a backward operator should lie."""
        primal = self.state.training.primals.get(name)
        return self.state.undecided(node) if primal is None else self._hints(operator, name, node)

    def _along_s(
        self,
        operator: Operator,
        splitter: Splitter,
        shards: Sequence[_Lies],
        loop: str | None,
        axis: int,
        whole_s: Floats,
    ) -> Floats:
        """[meshes]: seconds, roughly, of an operator that splits a loop along one axis, with what has to be moved along
        it.

        Args:
            whole_s: [meshes]; of the operator when it is not split.
        """
        space, mesh = operator.space, self.state.mesh
        if space is None:
            return whole_s
        seconds = whole_s / (1 if loop is None else mesh.sizes[axis])
        lies = dict(zip((*operator.inputs, *operator.outputs), shards, strict=True))
        for access, parts in zip(space.reads, splitter.reads, strict=True):
            seconds = seconds + self._moved_s(access.tensor, lies[access.tensor], parts.get(loop or ""), axis)
        for access, parts in zip(space.writes, splitter.writes, strict=True):
            how = access.reduced.get(loop or "")
            if how is None:
                seconds = seconds + self._moved_s(access.tensor, parts.get(loop or ""), lies[access.tensor], axis)
            elif how is not Reduction.MOMENTS:
                seconds = seconds + self._summed_s(access, axis)
        return seconds

    def _moved_s(self, name: str, source: _Lies, target: _Lies, axis: int) -> Floats | float:
        """Seconds, roughly, to bring a tensor along one axis from one shard to another."""
        if source in (target, None, _UNDECIDED) or target == _UNDECIDED:
            return 0.0
        operation = "all_gather" if target is None else "all_to_all"
        return self.state.mesh.moved_s(operation, self.state.num_bytes(name), axis=axis)

    def _summed_s(self, access: Access, axis: int) -> Floats | float:
        """Seconds, roughly, to join partial results; those of parameters are joined once an iteration."""
        primal = self.state.training.primals.get(access.tensor)
        if primal is not None and self.state.tensor(primal).role is TensorRole.PARAMETER:
            return 0.0
        return self.state.mesh.moved_s("reduce_scatter", self.state.num_bytes(access.tensor), axis=axis)

    # What is read and given

    def _read(self, name: str, node: int, specs: Chosen[ShardingSpec]) -> None:
        state = self.state
        if name in state.inner:
            self._reshard_inside(name, node, state.inner[name][1], specs)
            return
        primal = state.training.primals.get(name, name)
        if primal not in state.owned:
            state.reshard_edge(primal, node, specs, _BACKWARD)
        elif state.owned[primal].node == node:
            self._reshard_inside(primal, node, state.owned[primal].specs, specs)

    def _reshard_inside(
        self, name: str, node: int, sources: Chosen[ShardingSpec], targets: Chosen[ShardingSpec]
    ) -> None:
        costs_s = partial(self.state.mesh.reshardings_s, self.state.num_bytes(name))
        self.state.edge(Home(node=node, specs=sources), node, _BACKWARD, targets, costs_s)

    def _give(self, name: str, node: int, index: int, chosen: Chosen[Strategy]) -> None:
        """Brings a gradient to where it belongs."""
        state = self.state
        primal = state.training.primals.get(name)
        given = chosen.map(lambda strategy: (strategy.writes[index], partial_axes(strategy, index)))
        num_bytes = state.num_bytes(name)
        if primal is not None and state.tensor(primal).role is TensorRole.PARAMETER:
            state.gradients[primal] = node, given
        elif primal in state.homes:
            state.edge(state.homes[primal], node, _BACKWARD, given, partial(state.mesh.deliveries_s, num_bytes))
            return
        else:
            seconds = np.array([state.mesh.deliver_s(num_bytes, each, each[0]) for each in given.values])
            state.nodes[node].quantities[_BACKWARD] += given.pick(seconds)
        state.inner[name] = node, given.map(lambda each: each[0])
