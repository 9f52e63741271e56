"""The machines that a model is trained on: nodes of alike devices. Pure."""

from dataclasses import dataclass

from headway.core.cluster import Fabric


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Alike nodes.

    Attributes:
        device: its name in the catalogue.
        memory_bytes: of each device, what a plan may fill.
        link: between the devices of a node.
        network: of one port between nodes.
        num_ports: of each node.
    """

    device: str
    num_nodes: int
    devices_per_node: int
    memory_bytes: int
    link: Fabric
    network: Fabric
    num_ports: int = 1

    @property
    def num_devices(self) -> int:
        return self.num_nodes * self.devices_per_node

    @property
    def label(self) -> str:
        """E.g. 8x8xV100-16: nodes, devices of each, their kind."""
        return f"{self.num_nodes}x{self.devices_per_node}x{self.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCluster:
    """Groups of nodes; devices are numbered group after group, node after node."""

    groups: tuple[NodeGroup, ...]

    @property
    def num_devices(self) -> int:
        return sum(group.num_devices for group in self.groups)

    @property
    def label(self) -> str:
        return " + ".join(group.label for group in self.groups)
