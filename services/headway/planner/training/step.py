"""A training step of one micro-batch, as the search sees it. Pure."""

from headway.core.batching import at_batch, batch_loops, scaled_tensors
from headway.core.gradients import primals
from headway.core.graph import Graph
from headway.core.precision import Precision, cast_graph
from headway.planner.inter.layers import layer_key, make_layers
from headway.planner.inter.stage_table import LayeredStep
from headway.planner.intra.layer import Layer
from headway.planner.intra.training_graph import TrainingGraph


def training_graph(graph: Graph, micro_batch: int, precision: Precision) -> TrainingGraph:
    """The captured step with another number of examples and in another precision."""
    scaled = cast_graph(at_batch(graph, micro_batch), precision)
    return TrainingGraph(
        graph=scaled,
        tensors=scaled.tensors_by_name(),
        primals=primals(scaled),
        scaled=scaled_tensors(graph),
        batch_loops=batch_loops(graph),
    )


def layered_step(training: TrainingGraph, layers: list[Layer], precision: Precision) -> LayeredStep:
    return LayeredStep(
        training=training,
        layers=layers,
        keys=[layer_key(training, layer) for layer in layers],
        precision=precision,
    )


def cut_layers(training: TrainingGraph, num_layers: int | None) -> list[Layer]:
    """The step's layers; they are the same whatever the micro-batch."""
    return make_layers(training, num_layers=num_layers)
