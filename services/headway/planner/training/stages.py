"""Makes the stages of a plan from what the stage cut chose. Pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from headway.core.device_mesh import DeviceMesh, handover_s
from headway.core.plan.training import (
    OperatorSharding,
    ParameterSharding,
    TensorSharding,
    TrainingStage,
)
from headway.core.sharding_spec import ShardingSpec
from headway.core.training_cluster import NodeGroup
from headway.planner.inter.ranges import choose_range
from headway.planner.inter.stage_table import LayeredStep, Variant, layer_problems
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
        first_device: of its devices.
        in_flight: micro-batches whose activations are held.
    """

    first: int
    last: int
    mesh: DeviceMesh
    variant: Variant
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
        for name, alike in self._names.items():
            if name not in made and self.step.training.tensors[name].role in MADE:
                yield TensorSharding(tensor=name, spec=self.spec(alike))

    def made(self) -> dict[str, ShardingSpec]:
        """How all that its operators make lies."""
        operators = self.step.training.graph.operators
        pairs = zip(self._positions(self.layer), self._positions(self.kind), strict=True)
        return {
            name: self.spec(alike)
            for own, kind in pairs
            for name, alike in zip(operators[own].outputs, operators[kind].outputs, strict=True)
        }

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
    """Makes the stages of a step; what is possible in equal layers on one mesh is found once."""

    step: LayeredStep
    pricing: MeshPricing
    prices: Prices
    known: dict[tuple[int, DeviceMesh, bool], tuple[LayerProblem, LayerTable]] = field(default_factory=dict)

    def stage(self, layout: StageLayout) -> TrainingStage:
        """The stage with all its shardings, and what it takes."""
        return _stage(self.step, self.pricing.nodes, layout, self.layers(layout))

    def layers(self, layout: StageLayout) -> list[ChosenLayer]:
        """The cheapest shardings of a stage's layers."""
        kinds = self.step.kinds[layout.first : layout.last + 1]
        self._learn(kinds, layout)
        made = [self.known[kind, layout.mesh, layout.variant.recomputes] for kind in kinds]
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
            for i, (kind, (problem, table), choice) in enumerate(zip(kinds, made, choices, strict=True))
        ]

    def _learn(self, kinds: Collection[int], layout: StageLayout) -> None:
        mesh, again = layout.mesh, layout.variant.recomputes
        new = {kind for kind in kinds if (kind, mesh, again) not in self.known}
        for placed in layer_problems([self.step], [mesh], self.pricing, kinds=new):
            table = make_table(placed.problem, self.prices, recomputes=again)
            self.known[placed.kind, mesh, again] = placed.problem, table


def _stage(step: LayeredStep, nodes: NodeGroup, layout: StageLayout, layers: Sequence[ChosenLayer]) -> TrainingStage:
    total: Floats = np.sum([layer.quantities for layer in layers], axis=0)
    shardings = {sharding.operator: sharding for layer in layers for sharding in layer.operators()}
    parameters = {each.parameter: each for layer in layers for each in layer.parameters()}
    in_order = [operator.name for operator in step.training.graph.operators if operator.name in shardings]
    made = {
        name for operator in step.training.graph.operators if operator.name in shardings for name in operator.outputs
    }
    received = {each.tensor: each for layer in layers for each in layer.received(made)}
    specs = {name: each.spec for name, each in received.items()}
    for layer in layers:
        specs |= layer.made()
    memory = StageMemory(
        training=step.training,
        precision=step.precision,
        layers=[layer.layer for layer in layers],
        specs=specs,
        parameters=parameters,
        mesh_shape=layout.mesh.shape,
        recomputes=layout.variant.recomputes,
    )
    sent = step.sent_bytes(layout.first, layout.last)
    return TrainingStage(
        operators=tuple(in_order),
        mesh=layout.mesh,
        first_device=layout.first_device,
        shardings=tuple(shardings[name] for name in in_order),
        parameters=tuple(parameters.values()),
        received=tuple(received.values()),
        layers=tuple(len(layer.layer.forward) for layer in layers),
        in_flight=layout.in_flight,
        recomputes=layout.variant.recomputes,
        forward_s=float(total[Quantity.FORWARD_S]),
        backward_s=float(total[Quantity.BACKWARD_S]),
        handover_s=2 * handover_s(nodes, layout.mesh.submesh, sent),
        once_s=float(total[Quantity.ONCE_S]),
        memory=memory.of_device(in_flight=layout.in_flight),
    )
