"""A captured training step as planners see it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from headway.core.gradients import contributions
from headway.core.graph import Graph, Operator, TensorSpec
from headway.core.iteration import loops_of


@dataclass(frozen=True, kw_only=True)
class TrainingGraph:
    """A captured training step with what is known of its gradients.

    Attributes:
        primals: of each gradient the tensor that it is the gradient of.
        scaled: tensors whose size goes with the batch.
        batch_loops: loops of each operator that run along examples.
    """

    graph: Graph
    tensors: Mapping[str, TensorSpec]
    primals: Mapping[str, str]
    scaled: frozenset[str]
    batch_loops: Mapping[str, frozenset[str]]

    @cached_property
    def operators(self) -> Mapping[str, Operator]:
        """By their names."""
        return {operator.name: operator for operator in self.graph.operators}

    @cached_property
    def gradient_of(self) -> Mapping[str, str]:
        """Of each trained parameter its gradient."""
        return dict(zip(self.graph.trained, self.graph.gradients, strict=True))

    @cached_property
    def contributions(self) -> Mapping[str, str]:
        """Parts of parameters' gradients that are added up; see `headway.core.gradients.contributions`."""
        return contributions(self.graph)

    @cached_property
    def differentiated(self) -> frozenset[str]:
        """Tensors that have a gradient."""
        return frozenset(self.primals.values())

    @cached_property
    def batch_dims(self) -> Mapping[str, int]:
        """Of each tensor that operators make the dim that examples run along, where one does."""
        return {
            access.tensor: dim
            for operator in self.graph.operators
            if operator.space is not None
            for access in operator.space.writes
            for dim, text in enumerate(access.dims)
            if (loops := loops_of(text)) and loops[0] in self.batch_loops.get(operator.name, ())
        }
