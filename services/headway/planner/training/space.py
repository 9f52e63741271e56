"""What a search for a training plan may choose from. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from headway.core.device_mesh import Submesh
from headway.core.errors import InvalidArgumentError
from headway.planner.intra.loop_roles import LoopRole
from headway.planner.intra.options import AxisRole, ShardingOptions
from headway.planner.intra.parameters import NUM_ZERO_STAGES


class StageSize(StrEnum):
    """The submeshes that a stage may have."""

    ANY = "any"
    ALL = "all"
    ONE = "one"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """Attributes:
    axis_roles: of the two axes of each mesh.
    mesh_shapes: logical shapes that are allowed; empty for all.
    zero_stages: that parameters may have.
    recomputes: whether stages may compute their forward pass again, and whether they may not.
    num_stages: exactly so many; None for any number.
    by_largest_dim: whether parameters are sharded along their largest dim and no other.
    unsplit: what no axis of a mesh may split.
    equal_layers: whether all stages have the same number of layers, give or take one.
    equal_meshes: whether all stages have the same mesh.
    equal_operators: whether layers have the same number of operators, instead of being clustered by equation 3.6.
    """

    axis_roles: tuple[AxisRole, AxisRole] = (AxisRole.ANY, AxisRole.ANY)
    mesh_shapes: tuple[tuple[int, int], ...] = ()
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    recomputes: tuple[bool, ...] = (False, True)
    stage_size: StageSize = StageSize.ANY
    num_stages: int | None = None
    by_largest_dim: bool = False
    unsplit: frozenset[LoopRole] = frozenset()
    equal_layers: bool = False
    equal_meshes: bool = False
    equal_operators: bool = False

    def __post_init__(self) -> None:
        if not self.recomputes:
            raise InvalidArgumentError("recomputes is empty.", hint="Give true, false or both.", field="recomputes")
        if not self.zero_stages or not set(self.zero_stages) <= set(range(NUM_ZERO_STAGES)):
            raise InvalidArgumentError(
                f"zero_stages is {list(self.zero_stages)}.", hint="Give some of 0, 1, 2 and 3.", field="zero_stages"
            )
        if self.num_stages is not None and self.num_stages < 1:
            raise InvalidArgumentError(
                f"num_stages is {self.num_stages}.", hint="Give 1 stage or more.", field="num_stages"
            )

    @property
    def shardings(self) -> ShardingOptions:
        """What may be chosen inside a stage."""
        return ShardingOptions(
            axis_roles=self.axis_roles,
            zero_stages=self.zero_stages,
            by_largest_dim=self.by_largest_dim,
            unsplit=self.unsplit,
        )

    def allows(self, submesh: Submesh, num_devices: int) -> bool:
        """Whether a stage may have a submesh of a cluster with so many devices."""
        if self.stage_size is StageSize.ALL:
            return submesh.num_devices == num_devices
        if self.stage_size is StageSize.ONE:
            return submesh.num_devices == 1
        others = 0 if self.num_stages is None else self.num_stages - 1
        return submesh.num_devices + others <= num_devices

    def allows_shape(self, shape: tuple[int, int]) -> bool:
        """Whether the devices of a stage may be arranged so."""
        return not self.mesh_shapes or shape in self.mesh_shapes
