"""Makes the stages of a plan from what the stage cut chose. Pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from headway.core.device_mesh import DeviceMesh, crossing_s, handover_s
from headway.core.plan.training import (
    OperatorSharding,
    ParameterSharding,
    TensorSharding,
    TrainingStage,
)
from headway.core.sharding_spec import ShardingSpec
from headway.core.training_cluster import NodeGroup
from headway.planner.inter.ranges import choose_range
from headway.planner.inter.stage_table import LayeredStep, SiteMesh, Variant, joined_s, layer_problems, left_bytes
from headway.planner.intra.layer import Layer
from headway.planner.intra.layer_problem import LayerProblem
from headway.planner.intra.layer_table import LayerTable, make_table
from headway.planner.intra.mesh_costs import MeshPricing
from headway.planner.intra.quantities import Floats, Prices, Quantity
from headway.planner.training.memory import StageMemory
from headway.planner.training.workspace import MADE


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLayout:
    """Layers on a mesh, in a variant.

    Attributes:
        first, last: layers, both included.
        group: of nodes that they are in.
        next_group: that the next stage is in.
        first_device: of its devices.
        in_flight: micro-batches whose activations are held.
    """

    first: int
    last: int
    mesh: DeviceMesh
    variant: Variant
    group: int = 0
    next_group: int = 0
    first_device: int
    in_flight: int


@dataclass(frozen=True, kw_only=True)
class ChosenLayer:
    """One layer with its cheapest shardings between what enters and leaves."""

    step: LayeredStep
    layer: Layer
    kind: Layer
    problem: LayerProblem
    table: LayerTable
    entering: int
    leaving: int
    price: int

    @property
    def quantities(self) -> Floats:
        """[quantities]"""
        found: Floats = self.table.quantities[:, self.entering, self.leaving, self.price]
        return found

    def operators(self) -> Iterator[OperatorSharding]:
        """The splits of its operators; those of an equal layer have other names."""
        for own, alike in zip(self._positions(self.layer), self._positions(self.kind), strict=True):
            operator, model = (self.step.training.graph.operators[at] for at in (own, alike))
            node, strategies = self.problem.strategies.get(model.name, (None, ()))
            strategy = strategies[self._option(node)] if strategies else None
            loops = strategy.loops if strategy else (None,) * len(self.problem.mesh_shape)
            result = None
            if strategy is not None and strategy.writes and model.outputs and not model.is_backward:
                lies = self.spec(model.outputs[0])
                result = lies if lies != strategy.writes[0] else None
            yield OperatorSharding(operator=operator.name, splits=tuple(loop or "" for loop in loops), result=result)

    def parameters(self) -> Iterator[ParameterSharding]:
        for name, alike in self._names.items():
            for number, node in enumerate(self.problem.nodes):
                if alike in node.parameters:
                    stage = self.table.zero_stages[alike][self._option(number), self.price]
                    yield ParameterSharding(parameter=name, spec=self.spec(alike), zero_stage=int(stage))

    def received(self, made: Collection[str]) -> Iterator[TensorSharding]:
        """Activations and gradients that it reads and that are not among those that were `made`."""
        for name, alike in self.names_received:
            if name not in made:
                yield TensorSharding(tensor=name, spec=self.spec(alike))

    def made(self) -> dict[str, ShardingSpec]:
        """How all that its operators make lies."""
        return {name: self.spec(alike) for name, alike in self.names_made}

    @property
    def names_received(self) -> Iterator[tuple[str, str]]:
        """Activations and gradients that it reads, with their counterparts in the equal layer; of parameters that
        stages share gradients are joined once an iteration, and are not received."""
        training = self.step.training
        return (
            (name, alike)
            for name, alike in self._names.items()
            if training.tensors[name].role in MADE and name not in training.contributions
        )

    @property
    def names_made(self) -> Iterator[tuple[str, str]]:
        """What its operators make, with its counterparts in the equal layer."""
        operators = self.step.training.graph.operators
        for own, kind in zip(self._positions(self.layer), self._positions(self.kind), strict=True):
            yield from zip(operators[own].outputs, operators[kind].outputs, strict=True)

    def spec(self, name: str) -> ShardingSpec:
        """How a tensor of the layer lies, by its name in the equal layer whose problem it is."""
        node, specs = self.problem.specs.get(name, (None, ()))
        return specs[self._option(node)] if specs else ShardingSpec.replicated(len(self.problem.mesh_shape))

    def _option(self, node: int | None) -> int:
        return 0 if node is None else int(self.table.options[node][self.entering, self.leaving, self.price])

    @staticmethod
    def _positions(layer: Layer) -> Sequence[int]:
        return (*layer.forward, *layer.backward)

    @cached_property
    def _names(self) -> dict[str, str]:
        """Of each tensor that it reads its counterpart in the equal layer."""
        operators = self.step.training.graph.operators
        names: dict[str, str] = {}
        for own, alike in zip(self._positions(self.layer), self._positions(self.kind), strict=True):
            names |= dict(zip(operators[own].inputs, operators[alike].inputs, strict=True))
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMaker:
    """Makes the stages of a step; what is possible in equal layers on one mesh is found once.

    Attributes:
        pricing: of each group of nodes.
    """

    step: LayeredStep
    pricing: Sequence[MeshPricing]
    prices: Prices
    known: dict[tuple[int, frozenset[str], SiteMesh, bool], tuple[LayerProblem, LayerTable]] = field(
        default_factory=dict
    )

    def stage(self, layout: StageLayout) -> TrainingStage:
        """The stage with its cheapest shardings, and what it takes."""
        return self.made(layout, self.layers(layout))

    def made(self, layout: StageLayout, layers: Sequence[ChosenLayer]) -> TrainingStage:
        """The stage with shardings that are chosen."""
        total: Floats = np.sum([layer.quantities for layer in layers], axis=0)
        shardings = {sharding.operator: sharding for layer in layers for sharding in layer.operators()}
        memory = self.memory(layout, layers)
        in_order = [operator.name for operator in self.step.training.graph.operators if operator.name in shardings]
        groups = [each.nodes for each in self.pricing]
        return TrainingStage(
            operators=tuple(in_order),
            mesh=layout.mesh,
            group=layout.group,
            first_device=layout.first_device,
            shardings=tuple(shardings[name] for name in in_order),
            parameters=tuple(memory.parameters.values()),
            received=tuple(_received(self.step, layers).values()),
            layers=tuple(len(layer.layer.forward) for layer in layers),
            in_flight=layout.in_flight,
            recomputes=layout.variant.recomputes,
            forward_s=float(total[Quantity.FORWARD_S]),
            backward_s=float(total[Quantity.BACKWARD_S]),
            handover_s=2 * _handover_s(self.step, groups, layout),
            once_s=float(total[Quantity.ONCE_S])
            + joined_s(self.step, groups[layout.group], layout.mesh.submesh, layout.first, layout.last),
            memory=memory.of_device(in_flight=layout.in_flight),
        )

    def memory(self, layout: StageLayout, layers: Sequence[ChosenLayer]) -> StageMemory:
        """Counts what the devices of a stage hold."""
        received = _received(self.step, layers)
        specs = {name: each.spec for name, each in received.items()}
        for layer in layers:
            specs |= layer.made()
        return StageMemory(
            training=self.step.training,
            precision=self.step.precision,
            layers=[layer.layer for layer in layers],
            specs=specs,
            parameters={each.parameter: each for layer in layers for each in layer.parameters()},
            mesh_shape=layout.mesh.shape,
            recomputes=layout.variant.recomputes,
        )

    def layers(self, layout: StageLayout) -> list[ChosenLayer]:
        """The cheapest shardings of a stage's layers."""
        kinds = self.step.kinds_of(layout.first, layout.last)
        mesh, again = SiteMesh(layout.group, layout.mesh), layout.variant.recomputes
        self._learn(kinds, mesh, recomputes=again)
        made = [self.known[*kind, mesh, again] for kind in kinds]
        choices = choose_range([table for _, table in made], layout.variant.price)
        return [
            ChosenLayer(
                step=self.step,
                layer=self.step.layers[layout.first + i],
                kind=self.step.layers[kind],
                problem=problem,
                table=table,
                entering=choice.entering,
                leaving=choice.leaving,
                price=layout.variant.price,
            )
            for i, ((kind, _), (problem, table), choice) in enumerate(zip(kinds, made, choices, strict=True))
        ]

    def _learn(self, kinds: Collection[tuple[int, frozenset[str]]], mesh: SiteMesh, *, recomputes: bool) -> None:
        new = {kind for kind in kinds if (*kind, mesh, recomputes) not in self.known}
        for placed in layer_problems([self.step], [mesh.mesh], self.pricing[mesh.group], kinds=new):
            table = make_table(placed.problem, self.prices, recomputes=recomputes)
            self.known[placed.kind, placed.borrowed, mesh, recomputes] = placed.problem, table


def _handover_s(step: LayeredStep, groups: Sequence[NodeGroup], layout: StageLayout) -> float:
    """Seconds to send what a stage makes for later ones. To another group all that goes on passes slower links."""
    nodes, submesh = groups[layout.group], layout.mesh.submesh
    seconds = handover_s(nodes, submesh, step.sent_bytes(layout.first, layout.last))
    if layout.next_group == layout.group:
        return seconds
    num_bytes = left_bytes(step, layout.last)
    crossing = crossing_s(nodes, groups[layout.next_group], submesh, num_bytes)
    return seconds + crossing - handover_s(nodes, submesh, num_bytes)


def _received(step: LayeredStep, layers: Sequence[ChosenLayer]) -> dict[str, TensorSharding]:
    """What a stage's operators read and other stages make."""
    graph = step.training.graph
    made = {
        name
        for layer in layers
        for at in (*layer.layer.forward, *layer.layer.backward)
        for name in graph.operators[at].outputs
    }
    return {each.tensor: each for layer in layers for each in layer.received(made)}
