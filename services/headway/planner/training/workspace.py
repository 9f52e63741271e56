"""What a layer needs beside parameters and kept activations while it is computed. Pure."""

from collections.abc import Callable, Sequence

from headway.core.dataflow import Dataflow
from headway.core.graph import TensorRole
from headway.planner.intra.layer import Layer
from headway.planner.intra.placing import TrainingGraph

ShardBytes = Callable[[str], float]
MADE = (TensorRole.ACTIVATION, TensorRole.GRADIENT, TensorRole.OUTPUT)


def workspace_bytes(
    training: TrainingGraph, layer: Layer, flow: Dataflow, shard_bytes: ShardBytes, *, recomputes: bool
) -> float:
    """The most bytes that a device holds while a layer runs forward or backward: tensors that are made or
    read in it, each from then to its last reader, gradients to the end where other layers read them, without those that
    are kept for the backward pass or as what enters another layer.

    Args:
        shard_bytes: of a tensor on each device.
        recomputes: whether what the backward pass needs is made in the layer again, and so counts here.
    """
    operators = training.graph.operators
    entering = {name for at in layer.forward for name in operators[at].inputs}
    entering -= {name for at in layer.forward for name in operators[at].outputs}
    apart = {*training.graph.gradients, *(entering if recomputes else training.graph.saved)}
    passes = [(*layer.forward, *layer.backward)] if recomputes else [layer.forward, layer.backward]
    return max(_peak_bytes(training, each, flow, shard_bytes, apart) for each in passes)


def _peak_bytes(
    training: TrainingGraph, positions: Sequence[int], flow: Dataflow, shard_bytes: ShardBytes, apart: set[str]
) -> float:
    """Args:
    apart: tensors that are counted elsewhere.
    """
    inside = set(positions)
    ends: dict[int, list[str]] = {}
    held = peak = 0.0
    seen = set(apart)
    for at in positions:
        operator = training.graph.operators[at]
        for name in (*operator.inputs, *operator.outputs):
            if name in seen or training.tensors[name].role not in MADE:
                continue
            seen.add(name)
            held += shard_bytes(name)
            readers = flow.consumers.get(name, ())
            goes_on = training.tensors[name].role is TensorRole.GRADIENT and not inside.issuperset(readers)
            last = positions[-1] if goes_on else max((reader for reader in readers if reader in inside), default=at)
            ends.setdefault(last, []).append(name)
        peak = max(peak, held)
        held -= sum(shard_bytes(name) for name in ends.get(at, ()))
    return peak
