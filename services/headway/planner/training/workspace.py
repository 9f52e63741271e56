"""What a layer needs beside parameters and kept activations while it is computed. Pure."""

from collections.abc import Callable, Sequence

from headway.core.dataflow import Dataflow
from headway.core.graph import TensorRole
from headway.planner.intra.layer import Layer
from headway.planner.intra.training_graph import TrainingGraph

ShardBytes = Callable[[str], float]
_HELD = (TensorRole.ACTIVATION, TensorRole.GRADIENT, TensorRole.OUTPUT)


def workspace_bytes(
    training: TrainingGraph, layer: Layer, flow: Dataflow, shard_bytes: ShardBytes, *, recomputes: bool
) -> float:
    """The most bytes that a device holds while a layer runs forward or backward: tensors that are made in it, each from
    its maker to its last reader in the layer, without those that are kept for the backward pass.

    Args:
        shard_bytes: of a tensor on each device.
        recomputes: whether what the backward pass needs is made in the layer again, and so counts here.
    """
    kept = set() if recomputes else set(training.graph.saved)
    states = set(training.graph.gradients)
    passes = [(*layer.forward, *layer.backward)] if recomputes else [layer.forward, layer.backward]
    return max(_peak_bytes(training, each, flow, shard_bytes, kept | states) for each in passes)


def _peak_bytes(
    training: TrainingGraph, positions: Sequence[int], flow: Dataflow, shard_bytes: ShardBytes, apart: set[str]
) -> float:
    """Args:
    apart: tensors that are counted elsewhere.
    """
    inside = set(positions)
    ends: dict[int, list[str]] = {}
    held = peak = 0.0
    for at in positions:
        for name in training.graph.operators[at].outputs:
            if name in apart or training.tensors[name].role not in _HELD:
                continue
            held += shard_bytes(name)
            last = max((reader for reader in flow.consumers.get(name, ()) if reader in inside), default=at)
            ends.setdefault(last, []).append(name)
        peak = max(peak, held)
        held -= sum(shard_bytes(name) for name in ends.get(at, ()))
    return peak
