"""What a search for a training plan may choose from. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from headway.core.device_mesh import Submesh
from headway.core.training_cluster import NodeGroup


class AxisRole(StrEnum):
    """What the devices along a mesh axis may share among them."""

    ANY = "any"
    DATA = "data"  # the examples of a micro-batch
    MODEL = "model"  # anything but the examples


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
    """

    axis_roles: tuple[AxisRole, AxisRole] = (AxisRole.ANY, AxisRole.ANY)
    mesh_shapes: tuple[tuple[int, int], ...] = ()
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    recomputes: tuple[bool, ...] = (False, True)
    stage_size: StageSize = StageSize.ANY
    num_stages: int | None = None

    def allows(self, submesh: Submesh, nodes: NodeGroup) -> bool:
        """Whether a stage may have a submesh."""
        if self.stage_size is StageSize.ALL:
            return submesh.num_devices == nodes.num_devices
        if self.stage_size is StageSize.ONE:
            return submesh.num_devices == 1
        return self.num_stages is None or submesh.num_devices * self.num_stages <= nodes.num_devices
