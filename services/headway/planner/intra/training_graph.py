"""A captured training step as planners see it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from headway.core.gradients import contributions
from headway.core.graph import Graph, Operator, TensorSpec
from headway.core.iteration import loops_of
from headway.planner.intra.loop_roles import LoopRole, Roles


@dataclass(frozen=True, kw_only=True)
class TrainingGraph:
    """A captured training step with what is known of its gradients.

    Attributes:
        primals: of each gradient the tensor that it is the gradient of.
        scaled: tensors whose size goes with the batch.
        loop_roles: what the loops of each operator run along, by its name.
    """

    graph: Graph
    tensors: Mapping[str, TensorSpec]
    primals: Mapping[str, str]
    scaled: frozenset[str]
    loop_roles: Mapping[str, Roles]

    def role(self, operator: str, loop: str) -> LoopRole:
        """What a loop of an operator runs along."""
        return self.loop_roles.get(operator, {}).get(loop, LoopRole.MODEL)

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
    def dim_roles(self) -> Mapping[tuple[str, int], LoopRole]:
        """What the dims of tensors that operators make run along, by their major loops."""
        return {
            (access.tensor, dim): self.role(operator.name, loops[0])
            for operator in self.graph.operators
            if operator.space is not None
            for access in operator.space.writes
            for dim, text in enumerate(access.dims)
            if (loops := loops_of(text))
        }
