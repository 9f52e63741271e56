"""What a layer needs beside parameters and kept activations while it is computed. Pure."""

from collections.abc import Callable

from headway.core.dataflow import Dataflow
from headway.core.graph import TensorRole
from headway.planner.intra.layer import Layer
from headway.planner.intra.training_graph import TrainingGraph

ShardBytes = Callable[[str], float]
MADE = (TensorRole.ACTIVATION, TensorRole.GRADIENT, TensorRole.OUTPUT)


def workspace_bytes(
    training: TrainingGraph,
    layer: Layer,
    flow: Dataflow,
    shard_bytes: ShardBytes,
    *,
    recomputes: bool,
) -> float:
    """The most bytes that a device holds while a layer runs forward and backward, over those that it keeps in between.

    A tensor is there from its maker to its last reader in the layer. So the layer's kept activations are not all there
    yet while it runs forward, and no more while it runs backward; what later layers hand back is there from the
    backward pass's beginning. A parameter's gradient is added to those of earlier micro-batches at once.

    Args:
        shard_bytes: of a tensor on each device.
        recomputes: whether what the backward pass needs is made in the layer again, and none of it is kept.
    """
    positions = (*layer.forward, *layer.backward)
    inside, starts = set(positions), {at: list(training.graph.operators[at].outputs) for at in positions}
    if layer.backward:
        starts[layer.backward[0]] += _handed_back(training, layer, flow)
    saved = set() if recomputes else set(training.graph.saved)
    ends: dict[int, list[str]] = {}
    held = -sum(shard_bytes(name) for at in layer.forward for name in starts[at] if name in saved)
    peak = 0.0
    for at in positions:
        for name in starts[at]:
            if training.tensors[name].role in MADE:
                held += shard_bytes(name)
                readers = [reader for reader in flow.consumers.get(name, ()) if reader in inside]
                ends.setdefault(max(readers, default=at), []).append(name)
        peak = max(peak, held)
        held -= sum(shard_bytes(name) for name in ends.get(at, ()))
    return peak


def _handed_back(training: TrainingGraph, layer: Layer, flow: Dataflow) -> list[str]:
    """Gradients that later layers make."""
    inside = {*layer.forward, *layer.backward}
    read = dict.fromkeys(name for at in layer.backward for name in training.graph.operators[at].inputs)
    gradients = (name for name in read if training.tensors[name].role is TensorRole.GRADIENT)
    return [name for name in gradients if flow.producer[name] not in inside]
