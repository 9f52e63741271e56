"""What the devices of a stage keep of a micro-batch from its forward pass to its backward pass. Pure."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from headway.core.dataflow import Dataflow
from headway.planner.intra.layer import Layer


class ShardedLayer(Protocol):
    """A layer whose shardings are chosen."""

    @property
    def layer(self) -> Layer:
        """Its operators."""

    def shard_bytes(self, name: str) -> float:
        """Bytes of a tensor that it reads, on each device."""


def kept_bytes(layers: Sequence[ShardedLayer], flow: Dataflow, *, recomputes: bool) -> float:
    """Bytes on each device: what backward operators of the stage read, whichever stage made it; where the stage
    recomputes, what its layers receive.
    """
    kept: dict[str, float] = {}
    for layer in layers:
        for name, num_bytes in _received(layer, flow) if recomputes else _read_again(layer, flow):
            kept.setdefault(name, num_bytes)
    return sum(kept.values())


def _read_again(layer: ShardedLayer, flow: Dataflow) -> Iterator[tuple[str, float]]:
    yield from _forward_tensors(layer, flow, layer.layer.backward)


def _received(layer: ShardedLayer, flow: Dataflow) -> Iterator[tuple[str, float]]:
    own = set(layer.layer.forward)
    for name, num_bytes in _forward_tensors(layer, flow, layer.layer.forward):
        if flow.producer[name] not in own:
            yield name, num_bytes


def _forward_tensors(layer: ShardedLayer, flow: Dataflow, readers: Sequence[int]) -> Iterator[tuple[str, float]]:
    """What some operators read of what forward operators make."""
    for at in readers:
        for name in flow.graph.operators[at].inputs:
            maker = flow.producer.get(name)
            if maker is not None and not flow.graph.operators[maker].is_backward:
                yield name, layer.shard_bytes(name)
