"""Clusters to train on, as people write them: `8x8xV100`, or a file with groups of nodes."""

import re

from headway.core.catalogue import Catalogue
from headway.core.catalogue.device import Device, Link, Node
from headway.core.catalogue.located import Located, read_located
from headway.core.catalogue.quantity import Kind, parse_quantity
from headway.core.cost.catalogued import find_device
from headway.core.errors import InvalidArgumentError
from headway.core.held_memory import RUNTIME_BYTES
from headway.core.training_cluster import NodeGroup, TrainingCluster

_MOST_DEVICES = 1_000_000
_SHORTHAND = re.compile(r"(?P<nodes>\d+)x(?P<devices>\d+)x(?P<device>.+)", re.IGNORECASE)
_USUAL_NETWORK = "Ethernet 100"
_FIELDS = ("node", "device", "num_nodes", "devices_per_node", "memory_per_device", "link", "network", "num_ports")
_EXAMPLE = "Write node: DGX H100 and num_nodes: 8, or device, devices_per_node and num_nodes."


def is_shorthand(text: str) -> bool:
    """Whether it looks like NODESxGPUSxDEVICE."""
    return _SHORTHAND.fullmatch(text) is not None


def parse_training_cluster(text: str, catalogue: Catalogue) -> TrainingCluster:
    """Reads NODESxGPUSxDEVICE; several groups are joined by '+'. Links are those of the catalogue's node with such
    devices.

    Raises:
        InvalidArgumentError: it is none, or has no devices or too many.
        NotFoundError: the catalogue has no such device.
    """
    groups = []
    for part in text.split("+"):
        found = _SHORTHAND.fullmatch(part.strip())
        if found is None:
            raise InvalidArgumentError(
                f"'{part.strip()}' is no cluster.",
                hint="Write nodes x GPUs x device, such as 8x8xV100, or name a file.",
                field="cluster",
            )
        device = find_device(catalogue, found["device"])
        groups.append(_group(device, int(found["nodes"]), int(found["devices"]), catalogue))
    return _checked(groups)


def read_training_cluster(text: str, *, file: str, catalogue: Catalogue) -> TrainingCluster:
    """Reads a file with one group of nodes, or several under `groups`. InvalidArgumentError names file, line, field."""
    document = read_located(text, file=file)
    if "groups" in document.fields:
        return _checked([_read_group(item, catalogue) for item in document.fields["groups"].items])
    return _checked([_read_group(document, catalogue)])


def _checked(groups: list[NodeGroup]) -> TrainingCluster:
    cluster = TrainingCluster(groups=tuple(groups))
    if not 1 <= cluster.num_devices <= _MOST_DEVICES:
        raise InvalidArgumentError(
            f"A cluster of {cluster.num_devices} devices cannot be planned for.",
            hint=f"Give 1 to {_MOST_DEVICES}.",
            field="cluster",
        )
    return cluster


def _group(
    device: Device,
    num_nodes: int,
    devices_per_node: int,
    catalogue: Catalogue,
    *,
    node: Node | None = None,
    memory_bytes: int | None = None,
) -> NodeGroup:
    alike = node or next((node for node in catalogue.nodes.values() if node.device == device.name), None)
    link = catalogue.links[alike.link if alike else device.link]
    network = catalogue.links[alike.network if alike else _USUAL_NETWORK]
    ports = 1 if alike is None else max(1, alike.num_ports * devices_per_node // alike.num_devices)
    return NodeGroup(
        device=device.name,
        num_nodes=num_nodes,
        devices_per_node=devices_per_node,
        memory_bytes=_memory_bytes(device) if memory_bytes is None else memory_bytes,
        link=link.fabric,
        network=network.fabric,
        num_ports=ports,
    )


def _memory_bytes(device: Device) -> int:
    """What is left beside the runtime's own."""
    if device.memory is None:
        raise InvalidArgumentError(
            f"The catalogue has no memory of {device.name}.", hint="Write memory_per_device: 13 GiB.", field="cluster"
        )
    return int(device.memory.value) - RUNTIME_BYTES["cuda" if device.kind == "gpu" else "cpu"]


def _read_group(document: Located, catalogue: Catalogue) -> NodeGroup:
    for name, field in document.fields.items():
        if name not in _FIELDS:
            raise field.fault("is unknown", hint=f"Known are {', '.join(_FIELDS)}.")
    fields = document.fields
    if "num_nodes" not in fields or ("node" not in fields and not {"device", "devices_per_node"} <= set(fields)):
        raise document.fault("does not say which nodes and how many", hint=_EXAMPLE)
    node = _node(fields["node"], catalogue) if "node" in fields else None
    device = (
        _device(fields["device"], catalogue) if "device" in fields else catalogue.devices[node.device if node else ""]
    )
    per_node = _count(fields["devices_per_node"]) if "devices_per_node" in fields else (node.num_devices if node else 1)
    memory = fields.get("memory_per_device")
    group = _group(
        device,
        _count(fields["num_nodes"]),
        per_node,
        catalogue,
        node=node,
        memory_bytes=None if memory is None else _bytes(memory),
    )
    return NodeGroup(
        device=group.device,
        num_nodes=group.num_nodes,
        devices_per_node=group.devices_per_node,
        memory_bytes=group.memory_bytes,
        link=_link(fields["link"], catalogue).fabric if "link" in fields else group.link,
        network=_link(fields["network"], catalogue).fabric if "network" in fields else group.network,
        num_ports=_count(fields["num_ports"]) if "num_ports" in fields else group.num_ports,
    )


def _node(field: Located, catalogue: Catalogue) -> Node:
    if field.text not in catalogue.nodes:
        raise field.fault(
            f"names '{field.text}', which is no node of the catalogue", hint=f"It has {', '.join(catalogue.nodes)}."
        )
    return catalogue.nodes[field.text]


def _device(field: Located, catalogue: Catalogue) -> Device:
    if field.text not in catalogue.devices:
        raise field.fault(
            f"names '{field.text}', which is not in the catalogue",
            hint=f"It has {', '.join(catalogue.devices)}; --catalogue adds your own.",
        )
    return catalogue.devices[field.text]


def _link(field: Located, catalogue: Catalogue) -> Link:
    if field.text not in catalogue.links:
        raise field.fault(
            f"names '{field.text}', which is no link of the catalogue", hint=f"It has {', '.join(catalogue.links)}."
        )
    return catalogue.links[field.text]


def _bytes(field: Located) -> int:
    try:
        return int(parse_quantity(field.text, Kind.BYTES))
    except ValueError as error:
        raise field.fault(str(error), hint="Write memory_per_device: 13 GiB.") from error


def _count(field: Located) -> int:
    if not field.text.isdecimal() or not 1 <= int(field.text) <= _MOST_DEVICES:
        raise field.fault(f"should be a whole number from 1 to {_MOST_DEVICES}, not '{field.text}'")
    return int(field.text)
