"""What may be chosen inside a stage: loops that axes may split, and how parameters' state may be sharded. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headway.core.graph import Operator, TensorRole, TensorSpec
from headway.core.iteration import Access, loops_of
from headway.planner.intra.loop_roles import LoopRole
from headway.planner.intra.training_graph import TrainingGraph


class AxisRole(StrEnum):
    """What the devices along a mesh axis may share among them."""

    ANY = "any"
    DATA = "data"  # the examples of a micro-batch
    MODEL = "model"  # anything but the examples

    def allows(self, role: LoopRole) -> bool:
        """Whether an axis may split a loop."""
        return self is AxisRole.ANY or (self is AxisRole.DATA) is (role is LoopRole.DATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingOptions:
    """Attributes:
    axis_roles: of the two axes of each mesh.
    zero_stages: that parameters may have; some of 0 to 3.
    by_largest_dim: whether parameters are sharded along their largest dim and no other, by all axes.
    unsplit: what no axis may split.
    splits: of some operators, by name: for each mesh axis the loop that it splits, '' for none. All others are free.
    """

    axis_roles: tuple[AxisRole, AxisRole] = (AxisRole.ANY, AxisRole.ANY)
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    by_largest_dim: bool = False
    unsplit: frozenset[LoopRole] = frozenset()
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def given(self, operators: Sequence[Operator]) -> tuple[tuple[str, ...] | None, ...]:
        """Of each operator the splits that are given."""
        return tuple(self.splits.get(operator.name) for operator in operators) if self.splits else ()

    def allows(self, axis: int, role: LoopRole) -> bool:
        """Whether a mesh axis may split what has a role."""
        return self.axis_roles[axis].allows(role) and role not in self.unsplit

    def loops(
        self,
        operator: Operator,
        splittable: Iterable[str],
        training: TrainingGraph,
        mesh_shape: Iterable[int],
    ) -> list[list[str | None]]:
        """For each mesh axis what it may split of an operator; None for nothing.

        Args:
            splittable: the loops that can be split.
            training: the step that the operator is of.
        """
        fixed = self.splits.get(operator.name)
        free = list(splittable)
        largest = _largest_dim_loops(operator, training.tensors) if self.by_largest_dim else None
        if largest is not None:
            free = [loop for loop in free if loop in largest]
        found: list[list[str | None]] = []
        for axis, size in enumerate(mesh_shape):
            if size == 1:
                found.append([None])
            elif fixed is not None:
                found.append([fixed[axis] or None])
            else:
                found.append([None, *(loop for loop in free if self.allows(axis, training.role(operator.name, loop)))])
        return found


def _largest_dim_loops(operator: Operator, tensors: Mapping[str, TensorSpec]) -> set[str] | None:
    """The loops that run along the largest dim of the operator's largest parameter; None where it has none with two
    dims or more."""
    if operator.space is None or operator.is_backward:
        return None
    weights = [access for access in operator.space.reads if _is_weight(access, tensors)]
    if not weights:
        return None
    weight = max(weights, key=lambda access: tensors[access.tensor].num_elements)
    shape = tensors[weight.tensor].shape
    return set(loops_of(weight.dims[shape.index(max(shape))]))


def _is_weight(access: Access, tensors: Mapping[str, TensorSpec]) -> bool:
    tensor = tensors[access.tensor]
    return tensor.role is TensorRole.PARAMETER and len(tensor.shape) > 1
