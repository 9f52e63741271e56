"""What each device of a chosen stage holds at its peak. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from headway.core.graph import Operator, TensorRole
from headway.core.plan.training import DeviceMemory, ParameterSharding
from headway.core.precision import Precision
from headway.core.sharding_spec import ShardingSpec
from headway.planner.intra.layer import Layer
from headway.planner.intra.parameters import ParameterState, parameter_state
from headway.planner.intra.training_graph import TrainingGraph


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """The memory of a stage's devices.

    Attributes:
        specs: of all that its operators make or receive.
    """

    training: TrainingGraph
    precision: Precision
    layers: Sequence[Layer]
    specs: Mapping[str, ShardingSpec]
    parameters: Mapping[str, ParameterSharding]
    mesh_shape: tuple[int, ...]
    recomputes: bool

    def of_device(self, *, in_flight: int) -> DeviceMemory:
        """Args:
        in_flight: micro-batches whose activations are held.
        """
        states = [self._state(each, each.zero_stage) for each in self.parameters.values()]
        return DeviceMemory(
            weights_bytes=int(sum(state.weights_bytes for state in states)) + self.buffer_bytes,
            gradients_bytes=int(sum(state.gradients_bytes for state in states)),
            optimizer_bytes=int(sum(state.optimizer_bytes for state in states)),
            activations_bytes=int(in_flight * sum(map(self._num_bytes, self.kept))),
            workspace_bytes=int(self._workspace_bytes()),
        )

    def _workspace_bytes(self) -> float:
        """How far the peak of one micro-batch, over all operators, is above what it keeps between its two passes."""
        changes = [0.0] * (len(self._order) + 1)
        for name in self.specs:
            for first, last in self.intervals(name):
                changes[first] += self._num_bytes(name)
                changes[last + 1] -= self._num_bytes(name)
        live = accumulate(changes[:-1])
        peak = max((a + b for a, b in zip(live, self._gathered_bytes(), strict=True)), default=0.0)
        return max(0.0, peak - sum(map(self._num_bytes, self.kept)))

    def intervals(self, name: str) -> Iterator[tuple[int, int]]:
        """The times, as positions in the stage, at which a tensor is there: from its maker to its last reader.

        What is computed again is there twice. A parameter's gradient is added up at once, or where ZeRO shards it
        scattered when its layer is done.
        """
        read = self._read_at.get(name, [])
        first = self._made_at[name] if name in self._made_at else read[0]
        if name in self._scattered:
            yield first, self._last_of[self.layer_at[first]]
        elif self.recomputes and name in self._saved and name not in self.kept:
            yield first, max([first, *(at for at in read if not self._is_backward(self._order[at]))])
            yield self._needed_from[self._layer_of[name]], max(read)
        else:
            yield first, max([first, *read])

    def _gathered_bytes(self) -> list[float]:
        """For each operator the parameters of its layer that ZeRO gathers, and those of the larger layer beside it,
        which are gathered meanwhile."""
        names = [
            {name for at in (*layer.forward, *layer.backward) for name in self._operator(at).inputs}
            for layer in self.layers
        ]
        sharded = {name: each for name, each in self.parameters.items() if each.zero_stage >= 3}
        whole = [
            0.0,
            *(sum(self._state(sharded[name], 0).weights_bytes for name in sharded.keys() & read) for read in names),
            0.0,
        ]
        return [whole[layer + 1] + max(whole[layer], whole[layer + 2]) for layer in self.layer_at]

    @cached_property
    def kept(self) -> set[str]:
        """What is kept from the forward pass: what the backward pass reads of it; where the layers are computed again,
        what they receive."""
        if not self.recomputes:
            return self._saved
        received = {name for name in self.specs if name not in self._layer_of and self._is_forward(name)}
        for layer in self.layers:
            made = {name for at in layer.forward for name in self._operator(at).outputs}
            read = {name for at in layer.forward for name in self._operator(at).inputs}
            received |= {name for name in read - made if name in self._layer_of}
        return received

    @cached_property
    def _saved(self) -> set[str]:
        read = {name for at in self._order if self._is_backward(at) for name in self._operator(at).inputs}
        return {name for name in read if name in self.specs and self._is_forward(name)}

    @cached_property
    def _scattered(self) -> set[str]:
        """Gradients of parameters whose gradients ZeRO shards."""
        graph = self.training.graph
        parameter_of = dict(zip(graph.gradients, graph.trained, strict=True))
        sharded = {name for name, each in self.parameters.items() if each.zero_stage >= 2}
        return {name for name in self._made_at if parameter_of.get(name) in sharded}

    @cached_property
    def _order(self) -> list[int]:
        return sorted(at for layer in self.layers for at in (*layer.forward, *layer.backward))

    @cached_property
    def _layer_of(self) -> dict[str, int]:
        """Of all that the stage's forward operators make, the layer."""
        return {
            name: number
            for number, layer in enumerate(self.layers)
            for at in layer.forward
            for name in self._operator(at).outputs
        }

    @cached_property
    def layer_at(self) -> list[int]:
        """The layer of each operator, in order."""
        layer_of = {at: i for i, layer in enumerate(self.layers) for at in (*layer.forward, *layer.backward)}
        return [layer_of[at] for at in self._order]

    @cached_property
    def _last_of(self) -> dict[int, int]:
        """The position of the last operator of each layer."""
        return {layer: at for at, layer in enumerate(self.layer_at)}

    @cached_property
    def _made_at(self) -> dict[str, int]:
        return {name: i for i, at in enumerate(self._order) for name in self._operator(at).outputs}

    @cached_property
    def _read_at(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, at in enumerate(self._order):
            for name in self._operator(at).inputs:
                found.setdefault(name, []).append(i)
        return found

    @cached_property
    def _needed_from(self) -> dict[int, int]:
        """The position of the first backward operator that reads something that a layer computes again."""
        found: dict[int, int] = {}
        for i, at in enumerate(self._order):
            for name in self._operator(at).inputs if self._is_backward(at) else ():
                if name in self._layer_of:
                    found.setdefault(self._layer_of[name], i)
        return found

    @cached_property
    def _forward_results(self) -> set[str]:
        return {name for op in self.training.graph.operators if not op.is_backward for name in op.outputs}

    @property
    def buffer_bytes(self) -> int:
        return sum(self.training.tensors[name].num_bytes for name in self._buffers())

    def _buffers(self) -> Iterator[str]:
        read = {name for at in self._order for name in self._operator(at).inputs}
        return (name for name in read if self.training.tensors[name].role is TensorRole.BUFFER)

    def _operator(self, at: int) -> Operator:
        return self.training.graph.operators[at]

    def _is_backward(self, at: int) -> bool:
        return self._operator(at).is_backward

    def _is_forward(self, name: str) -> bool:
        return name in self._forward_results

    def _num_bytes(self, name: str) -> float:
        return self.training.tensors[name].num_bytes / self.specs[name].num_shards(self.mesh_shape)

    def _state(self, sharding: ParameterSharding, zero_stage: int) -> ParameterState[float]:
        name = sharding.parameter
        return parameter_state(
            self.training.tensors[name],
            sharding.spec,
            zero_stage,
            self.mesh_shape,
            self.precision,
            is_trained=name in self.training.graph.trained,
        )
