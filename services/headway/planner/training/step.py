"""A training step of one micro-batch, as the search sees it. Pure."""

from headway.core.batch_dims import BatchDims
from headway.core.batching import at_batch
from headway.core.gradients import primals
from headway.core.graph import Graph, Operator
from headway.core.precision import Precision, cast_graph
from headway.planner.inter.layers import equal_layers, layer_key, make_layers
from headway.planner.inter.stage_table import LayeredStep
from headway.planner.intra.layer import Layer
from headway.planner.intra.loop_roles import loop_roles
from headway.planner.intra.options import ShardingOptions
from headway.planner.intra.training_graph import TrainingGraph


def training_graph(graph: Graph, micro_batch: int, precision: Precision) -> TrainingGraph:
    """The captured step with another number of examples and in another precision."""
    scaled, growing = cast_graph(at_batch(graph, micro_batch), precision), BatchDims(graph)
    gradients_of = primals(scaled)
    return TrainingGraph(
        graph=scaled,
        tensors=scaled.tensors_by_name(),
        primals=gradients_of,
        scaled=frozenset(growing.dims),
        loop_roles=loop_roles(graph, growing, gradients_of),
    )


def layered_step(
    training: TrainingGraph, layers: list[Layer], precision: Precision, options: ShardingOptions
) -> LayeredStep:
    """Layers are alike only where the same operators have their splits given."""
    return LayeredStep(
        training=training,
        layers=layers,
        keys=[(layer_key(training, layer), options.given(_operators(training, layer))) for layer in layers],
        precision=precision,
        options=options,
    )


def cut_layers(training: TrainingGraph, num_layers: int | None, *, equal_operators: bool = False) -> list[Layer]:
    """The step's layers; they are the same whatever the micro-batch."""
    layers = make_layers(training, num_layers=num_layers)
    return equal_layers(training, len(layers)) if equal_operators else layers


def _operators(training: TrainingGraph, layer: Layer) -> list[Operator]:
    return [training.graph.operators[at] for at in (*layer.forward, *layer.backward)]
