"""The tensors of one micro-batch that pass through a stage: their bytes on each device, and which of them are kept."""

from functools import cached_property
from math import prod

from headway.core.graph import Operator
from headway.core.sharding_spec import ShardingSpec
from headway.planner.certify.training.results import tensor_specs
from headway.planner.certify.training.step import PlannedStep


class HeldTensors:
    """What a stage's devices hold of one micro-batch.

    Attributes:
        step, stage: whose tensors they are.
        operators: of the stage, in order.
    """

    def __init__(self, step: PlannedStep, number: int) -> None:
        self.step = step
        self.stage = step.plan.stages[number]
        self.operators = list(step.operators_of(self.stage))

    def num_bytes(self, name: str) -> float:
        """Bytes on each device, in the plan's precision."""
        sizes = zip(self.stage.mesh.shape, self._specs[name].axes, strict=True)
        return self.step.cast_tensors[name].num_bytes / prod(size for size, shard in sizes if shard is not None)

    @cached_property
    def names(self) -> list[str]:
        """All that the stage's operators make or receive."""
        return list(self._specs)

    @cached_property
    def scattered(self) -> set[str]:
        """Gradients of parameters in ZeRO 2 and 3."""
        gradient_of = dict(zip(self.step.graph.trained, self.step.graph.gradients, strict=True))
        sharded = (each.parameter for each in self.stage.parameters if each.zero_stage >= 2)
        return {gradient_of[name] for name in sharded if name in gradient_of} & self.made_at.keys()

    @cached_property
    def kept(self) -> set[str]:
        """What is kept from the forward pass for the backward pass: what the stage's backward operators read of it, or
        where that is computed again, what its layers receive.
        """
        if not self.stage.recomputes:
            return self.saved
        inputs = {
            name
            for layer, operator in self._forward
            for name in operator.inputs
            if self.layer_of.get(name, layer) != layer
        }
        return inputs | {each.tensor for each in self.stage.received if self.is_forward(each.tensor)}

    @cached_property
    def saved(self) -> set[str]:
        """What the stage's backward operators read of what forward operators make."""
        read = {name for operator in self.operators if operator.is_backward for name in operator.inputs}
        return {name for name in read if name in self._specs and self.is_forward(name)}

    @cached_property
    def layer_of(self) -> dict[str, int]:
        """The layer of each tensor that the stage's forward operators make, by the tensor's name."""
        return {name: layer for layer, operator in self._forward for name in operator.outputs}

    @cached_property
    def made_at(self) -> dict[str, int]:
        """The position in the stage of the operator that makes each tensor."""
        return {name: at for at, operator in enumerate(self.operators) for name in operator.outputs}

    @cached_property
    def read_at(self) -> dict[str, list[int]]:
        """The positions in the stage of the operators that read each tensor."""
        found: dict[str, list[int]] = {}
        for at, operator in enumerate(self.operators):
            for name in operator.inputs:
                found.setdefault(name, []).append(at)
        return found

    @cached_property
    def layers_at(self) -> list[int]:
        """The layer of each of the stage's operators; a backward one is in that of its forward operator."""
        layers = {operator.name: layer for layer, operator in self._forward}
        found: list[int] = []
        for operator in self.operators:
            before = found[-1] if found else 0
            found.append(layers.get(operator.name, layers.get(operator.forward, before)))
        return found

    @cached_property
    def last_at(self) -> dict[int, int]:
        """The position in the stage of the last operator of each layer."""
        return {layer: at for at, layer in enumerate(self.layers_at)}

    @cached_property
    def needed_from(self) -> dict[int, int]:
        """The position of the first backward operator that reads something of each layer."""
        found: dict[int, int] = {}
        for at, operator in enumerate(self.operators):
            for name in operator.inputs if operator.is_backward else ():
                if name in self.layer_of:
                    found.setdefault(self.layer_of[name], at)
        return found

    def is_forward(self, name: str) -> bool:
        maker = self.step.maker(name)
        return maker is not None and not maker.is_backward

    @cached_property
    def _specs(self) -> dict[str, ShardingSpec]:
        return tensor_specs(self.step, self.stage)

    @cached_property
    def _forward(self) -> list[tuple[int, Operator]]:
        """The stage's forward operators with the numbers of their layers."""
        numbers = [layer for layer, size in enumerate(self.stage.layers) for _ in range(size)]
        forward = (operator for operator in self.operators if not operator.is_backward)
        return list(zip(numbers, forward, strict=False))
