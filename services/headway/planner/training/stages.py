"""Makes the stages of a plan from what the stage cut chose. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headway.core.cost.costs import Costs
from headway.core.dataflow import Dataflow
from headway.core.device_mesh import DeviceMesh, handover_s
from headway.core.sharding_spec import ShardingSpec
from headway.core.training_cluster import NodeGroup
from headway.core.training_plan import DeviceMemory, OperatorSharding, ParameterSharding, TrainingStage
from headway.planner.inter.ranges import choose_range
from headway.planner.inter.stage_table import LayeredStep, Variant, layer_problems
from headway.planner.intra.layer import Layer
from headway.planner.intra.layer_problem import LayerProblem
from headway.planner.intra.layer_table import LayerTable, make_table
from headway.planner.intra.parameters import parameter_state
from headway.planner.intra.quantities import Floats, Prices, Quantity
from headway.planner.training.workspace import workspace_bytes


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

    def spec(self, name: str) -> ShardingSpec:
        """How a tensor of the layer lies, by its name in the equal layer whose problem it is."""
        node, specs = self.problem.specs.get(name, (None, ()))
        return specs[self._option(node)] if specs else ShardingSpec.replicated(len(self.problem.mesh_shape))

    def workspace_bytes(self, flow: Dataflow, *, recomputes: bool) -> float:
        tensors = self.step.training.tensors

        def shard_bytes(name: str) -> float:
            return tensors[name].num_bytes / self.spec(name).num_shards(self.problem.mesh_shape)

        return workspace_bytes(self.step.training, self.kind, flow, shard_bytes, recomputes=recomputes)

    def _option(self, node: int | None) -> int:
        return 0 if node is None else int(self.table.options[node][self.entering, self.leaving, self.price])

    @staticmethod
    def _positions(layer: Layer) -> Sequence[int]:
        return (*layer.forward, *layer.backward)

    @cached_property
    def _names(self) -> dict[str, str]:
        """Of each parameter its counterpart in the equal layer."""
        operators = self.step.training.graph.operators
        names: dict[str, str] = {}
        for own, alike in zip(self._positions(self.layer), self._positions(self.kind), strict=True):
            names |= dict(zip(operators[own].inputs, operators[alike].inputs, strict=True))
        parameters = {name for node in self.problem.nodes for name in node.parameters}
        return {name: alike for name, alike in names.items() if alike in parameters}


def choose_layers(
    step: LayeredStep, nodes: NodeGroup, layout: StageLayout, costs: Costs, prices: Prices
) -> list[ChosenLayer]:
    """The cheapest shardings of a stage's layers."""
    kinds = step.kinds[layout.first : layout.last + 1]
    problems = {
        kind: problem for kind, _, problem in layer_problems(step, nodes, [layout.mesh], costs, kinds=set(kinds))
    }
    tables = {
        kind: make_table(problem, prices, recomputes=layout.variant.recomputes) for kind, problem in problems.items()
    }
    choices = choose_range([tables[kind] for kind in kinds], layout.variant.price)
    return [
        ChosenLayer(
            step=step,
            layer=step.layers[layout.first + i],
            kind=step.layers[kind],
            problem=problems[kind],
            table=tables[kind],
            entering=choice.entering,
            leaving=choice.leaving,
            price=layout.variant.price,
        )
        for i, (kind, choice) in enumerate(zip(kinds, choices, strict=True))
    ]


def make_stage(step: LayeredStep, nodes: NodeGroup, layout: StageLayout, costs: Costs, prices: Prices) -> TrainingStage:
    """The stage with all its shardings, and what it takes."""
    layers = choose_layers(step, nodes, layout, costs, prices)
    total = sum(layer.quantities for layer in layers)
    shardings = {sharding.operator: sharding for layer in layers for sharding in layer.operators()}
    parameters = {each.parameter: each for layer in layers for each in layer.parameters()}
    in_order = [operator.name for operator in step.training.graph.operators if operator.name in shardings]
    sent = sum(step.training.tensors[name].num_bytes for name in layers[-1].layer.leaving)
    return TrainingStage(
        operators=tuple(in_order),
        mesh=layout.mesh,
        first_device=layout.first_device,
        shardings=tuple(shardings[name] for name in in_order),
        parameters=tuple(parameters.values()),
        in_flight=layout.in_flight,
        recomputes=layout.variant.recomputes,
        forward_s=float(total[Quantity.FORWARD_S]),
        backward_s=float(total[Quantity.BACKWARD_S]),
        handover_s=2 * handover_s(nodes, layout.mesh.submesh, sent),
        once_s=float(total[Quantity.ONCE_S]),
        memory=_memory(step, layers, parameters, layout, float(total[Quantity.ACTIVATION_BYTES])),
    )


def _memory(
    step: LayeredStep,
    layers: Sequence[ChosenLayer],
    parameters: Mapping[str, ParameterSharding],
    layout: StageLayout,
    activations_bytes: float,
) -> DeviceMemory:
    trained = set(step.training.graph.trained)
    states = [
        parameter_state(
            step.training.tensors[name],
            each.spec,
            each.zero_stage,
            layout.mesh.shape,
            step.precision,
            is_trained=name in trained,
        )
        for name, each in parameters.items()
    ]
    flow = Dataflow(step.training.graph)
    seen: dict[tuple[int, int, int], float] = {}
    for layer in layers:
        key = layer.kind.forward[0], layer.entering, layer.leaving
        if key not in seen:
            seen[key] = layer.workspace_bytes(flow, recomputes=layout.variant.recomputes)
    return DeviceMemory(
        weights_bytes=int(sum(state.weights_bytes for state in states)),
        gradients_bytes=int(sum(state.gradients_bytes for state in states)),
        optimizer_bytes=int(sum(state.optimizer_bytes for state in states)),
        activations_bytes=int(activations_bytes * layout.in_flight),
        workspace_bytes=int(max(seen.values())),
    )
