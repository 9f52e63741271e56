"""Device meshes: a part of a cluster, arranged in up to two axes that tensors are sharded over (dissertation section
3.4.1). Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from headway.core.training_cluster import NodeGroup

_ALL_TO_ALL = "all_to_all"


@dataclass(frozen=True, slots=True, order=True)
class Submesh:
    """Neighbouring devices: a part of one node, or whole nodes."""

    num_nodes: int
    devices_per_node: int

    @property
    def num_devices(self) -> int:
        return self.num_nodes * self.devices_per_node

    def __str__(self) -> str:
        return f"{self.num_nodes}x{self.devices_per_node}"


@dataclass(frozen=True, slots=True)
class DeviceMesh:
    """A submesh with a logical shape: its devices, node after node, fill the shape row by row.

    Attributes:
        shape: devices along each axis; 2x8 devices can be (2, 8), (4, 4), (16, 1) and so on.
    """

    submesh: Submesh
    shape: tuple[int, ...]

    @property
    def num_devices(self) -> int:
        return prod(self.shape)

    def stride(self, axis: int) -> int:
        """Devices between neighbours along an axis."""
        return prod(self.shape[axis + 1 :])

    def num_near(self, axis: int) -> int:
        """Devices along an axis that are in one node."""
        near = max(1, self.submesh.devices_per_node // self.stride(axis))
        return min(self.shape[axis], near)

    def num_groups(self, axis: int) -> int:
        """The groups along an axis of which a node has members: they share its ports."""
        return self.submesh.devices_per_node // self.num_near(axis)

    def __str__(self) -> str:
        return "x".join(map(str, self.shape))


@dataclass(frozen=True, slots=True)
class DeviceMeshLinks:
    """The links along the axes of a device mesh: collectives over several nodes share the nodes' ports."""

    nodes: NodeGroup
    mesh: DeviceMesh

    def seconds(self, operation: str, num_bytes: float, *, axis: int) -> float:
        """Seconds of collectives in all groups along an axis at the same time.

        Args:
            operation: 'all_gather', 'all_to_all', 'all_reduce' or 'reduce_scatter'.
            num_bytes: that leave each device.
        """
        size = self.mesh.shape[axis]
        if size == 1:
            return 0.0
        near, link = self.mesh.num_near(axis), self.nodes.link
        if near == size:
            return link.collective_s(num_bytes, num_ranks=size)
        network = self.nodes.network
        if operation == _ALL_TO_ALL:
            leaving = num_bytes * (size - near) / (size - 1) * self.mesh.submesh.devices_per_node
        else:  # a ring enters and leaves each node once
            leaving = num_bytes * self.mesh.num_groups(axis)
        outside_s = leaving / (network.bytes_per_s * self.nodes.num_ports)
        inside_s = num_bytes / link.bytes_per_s if near > 1 else 0.0
        return network.collective_s(0, num_ranks=size) + max(outside_s, inside_s)


def submeshes(nodes: NodeGroup) -> Iterator[Submesh]:
    """Yields the shapes of stages: 1, 2, 4, ... devices of one node, a whole node, and 2, 4, 8, ... nodes, and all.

    The dissertation takes every number of whole nodes (section 3.5.2). Up to 16 nodes so does this; of more nodes only
    powers of two, and all.
    """
    devices = 1
    while devices < nodes.devices_per_node:
        yield Submesh(1, devices)
        devices *= 2
    for num_nodes in range(1, nodes.num_nodes + 1):
        is_power = num_nodes & (num_nodes - 1) == 0
        if nodes.num_nodes <= 16 or is_power or num_nodes == nodes.num_nodes:
            yield Submesh(num_nodes, nodes.devices_per_node)


def logical_shapes(submesh: Submesh) -> Iterator[tuple[int, int]]:
    """Yields the two-dimensional shapes of a submesh whose second axis lies in a node or fills whole ones."""
    total = submesh.num_devices
    for inner in range(1, total + 1):
        near = inner <= submesh.devices_per_node and submesh.devices_per_node % inner == 0
        if total % inner == 0 and (near or inner % submesh.devices_per_node == 0):
            yield (total // inner, inner)
