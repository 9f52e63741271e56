"""What each device of a chosen stage holds at its peak. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headway.core.graph import Operator, TensorRole
from headway.core.plan.training import DeviceMemory, ParameterSharding
from headway.core.precision import Precision
from headway.core.sharding_spec import ShardingSpec
from headway.planner.intra.layer import Layer
from headway.planner.intra.parameters import ParameterState, parameter_state
from headway.planner.intra.placing import TrainingGraph


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
            weights_bytes=int(sum(state.weights_bytes for state in states)) + self._buffer_bytes,
            gradients_bytes=int(sum(state.gradients_bytes for state in states)),
            optimizer_bytes=int(sum(state.optimizer_bytes for state in states)),
            activations_bytes=int(in_flight * sum(map(self._num_bytes, self._kept))),
            workspace_bytes=int(self._workspace_bytes()),
        )

    def _workspace_bytes(self) -> float:
        """The peak, over all operators, of what is live and not kept, with what ZeRO gathers or is yet to scatter."""
        apart = self._kept | set(self.training.graph.gradients)
        last_read = {name: at for at in self._order for name in self._operator(at).inputs}
        forward = [at for at in self._order if not self._is_backward(at)]
        last_forward = {name: at for at in forward for name in self._operator(at).inputs}
        live: set[str] = set()
        num_bytes = peak = 0.0
        for at in self._order:
            operator = self._operator(at)
            again = self._made_again.get(at, ())
            for name in (*operator.inputs, *operator.outputs, *again):
                if name in self.specs and name not in apart and name not in live:
                    live.add(name)
                    num_bytes += self._num_bytes(name)
            peak = max(peak, num_bytes + self._whole_bytes(operator))
            for name in live & {*operator.inputs, *operator.outputs}:
                is_let_go = self.recomputes and name in self._saved and not self._is_backward(at)
                if (last_forward if is_let_go else last_read).get(name, at) <= at:
                    live.remove(name)
                    num_bytes -= self._num_bytes(name)
        return peak

    def _whole_bytes(self, operator: Operator) -> float:
        """Parameters that are gathered for an operator, and gradients that it makes before they are scattered."""
        total = 0.0
        for name in operator.inputs:
            if name in self.parameters and self.parameters[name].zero_stage >= 3:
                parts, whole = (self._state(self.parameters[name], stage).weights_bytes for stage in (3, 0))
                total += whole - parts
        for name in operator.outputs:
            sharded = self.parameters.get(self._parameter_of.get(name, ""))
            if sharded is not None and sharded.zero_stage >= 2:
                parts, whole = (self._state(sharded, stage).gradients_bytes for stage in (2, 0))
                total += whole - parts
        return total

    @cached_property
    def _kept(self) -> set[str]:
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
    def _made_again(self) -> dict[int, list[str]]:
        """What is saved of each layer, by the first backward operator that reads any of it; where layers are computed
        again."""
        found: dict[int, list[str]] = {}
        known: set[int] = set()
        for at in self._order if self.recomputes else ():
            layers = {self._layer_of[name] for name in self._operator(at).inputs if name in self._layer_of}
            for layer in layers - known if self._is_backward(at) else ():
                found.setdefault(at, []).extend(name for name in self._saved if self._layer_of.get(name) == layer)
                known.add(layer)
        return found

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
    def _parameter_of(self) -> dict[str, str]:
        graph = self.training.graph
        return dict(zip(graph.gradients, graph.trained, strict=True))

    @cached_property
    def _forward_results(self) -> set[str]:
        return {name for op in self.training.graph.operators if not op.is_backward for name in op.outputs}

    @property
    def _buffer_bytes(self) -> int:
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

    def _state(self, sharding: ParameterSharding, zero_stage: int) -> ParameterState:
        name = sharding.parameter
        return parameter_state(
            self.training.tensors[name],
            sharding.spec,
            zero_stage,
            self.mesh_shape,
            self.precision,
            is_trained=name in self.training.graph.trained,
        )
