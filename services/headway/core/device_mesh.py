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


class DeviceMeshLinks:
    """The links along the axes of a device mesh: collectives over several nodes share the nodes' ports."""

    def __init__(self, nodes: NodeGroup, mesh: DeviceMesh) -> None:
        self._latency_s = [_latency_s(nodes, mesh, axis) for axis in range(len(mesh.shape))]
        self._second_per_byte = [
            {is_exchange: _second_per_byte(nodes, mesh, axis, is_exchange=is_exchange) for is_exchange in (False, True)}
            for axis in range(len(mesh.shape))
        ]

    def seconds(self, operation: str, num_bytes: float, *, axis: int) -> float:
        """Seconds of collectives in all groups along an axis at the same time.

        Args:
            operation: 'all_gather', 'all_to_all', 'all_reduce' or 'reduce_scatter'.
            num_bytes: that leave each device.
        """
        return self.latency_s(axis) + num_bytes * self.second_per_byte(operation, axis)

    def latency_s(self, axis: int) -> float:
        """Of a collective along an axis, however little it carries."""
        return self._latency_s[axis]

    def second_per_byte(self, operation: str, axis: int) -> float:
        """For each byte that leaves a device."""
        return self._second_per_byte[axis][operation == _ALL_TO_ALL]


def _latency_s(nodes: NodeGroup, mesh: DeviceMesh, axis: int) -> float:
    size = mesh.shape[axis]
    fabric = nodes.link if mesh.num_near(axis) == size else nodes.network
    return fabric.collective_s(0, num_ranks=size)


def _second_per_byte(nodes: NodeGroup, mesh: DeviceMesh, axis: int, *, is_exchange: bool) -> float:
    """Seconds for each byte that leaves a device: inside a node by its link, between nodes by ports that all groups
    share. A ring enters and leaves each node once; in an exchange all that goes to other nodes does."""
    size, near = mesh.shape[axis], mesh.num_near(axis)
    inside = 1 / nodes.link.bytes_per_s if near > 1 else 0.0
    if near == size:
        return inside
    leaving = float(mesh.num_groups(axis))
    if is_exchange:
        leaving = mesh.submesh.devices_per_node * (size - near) / (size - 1)
    return max(inside, leaving / (nodes.network.bytes_per_s * nodes.num_ports))


def handover_s(nodes: NodeGroup, submesh: Submesh, num_bytes: float) -> float:
    """Seconds to send a tensor from one stage to the next of the same size, each element once.

    What the next stage's devices replicate they gather among themselves (dissertation section 3.6, cross-mesh
    resharding with local all-gather).

    Args:
        num_bytes: of the whole tensor.
    """
    if not num_bytes:
        return 0.0
    if submesh.num_devices < nodes.devices_per_node:
        return nodes.link.latency_s + num_bytes / (submesh.num_devices * nodes.link.bytes_per_s)
    ports = submesh.num_nodes * nodes.num_ports
    return nodes.network.latency_s + num_bytes / (ports * nodes.network.bytes_per_s)


def crossing_s(nodes: NodeGroup, other: NodeGroup, submesh: Submesh, num_bytes: float) -> float:
    """Seconds to send a tensor to a stage in another group of nodes, each element once.

    All goes through the ports of whole nodes, and as fast as the slower of the two networks; the other stage is taken
    to have as many nodes.

    Args:
        nodes: that the submesh is in.
        num_bytes: of the whole tensor.
    """
    if not num_bytes:
        return 0.0
    of_node = min(each.num_ports * each.network.bytes_per_s for each in (nodes, other))
    latency_s = max(nodes.network.latency_s, other.network.latency_s)
    return latency_s + num_bytes / (submesh.num_nodes * of_node)


def join_s(nodes: NodeGroup, submesh: Submesh, num_bytes: float, *, num_stages: int) -> float:
    """Seconds of an all-reduce of a tensor among stages that all hold it, each on its own devices: once an iteration,
    the gradient of a parameter that they share.

    Args:
        num_bytes: of the whole tensor.
    """
    sent = 2 * num_bytes * (num_stages - 1) / num_stages
    if nodes.num_nodes == 1:
        return nodes.link.latency_s + sent / (submesh.num_devices * nodes.link.bytes_per_s)
    return crossing_s(nodes, nodes, submesh, sent)


def submeshes(nodes: NodeGroup) -> Iterator[Submesh]:
    """Yields the shapes of stages: 1, 2, 4, ... devices of one node, a whole node, and 2, 4, 8, ... nodes, and all.

    The dissertation takes every number of whole nodes (section 3.5.2). Up to 16 nodes so does this; of more nodes only
    powers of two, and all. Parts of a node are such that divide it, as all others need not fill a cluster.
    """
    devices = 1
    while devices < nodes.devices_per_node and nodes.devices_per_node % devices == 0:
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
