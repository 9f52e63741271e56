"""`cluster.yaml`: the devices to place models on."""

from headway.core.catalogue import Catalogue
from headway.core.catalogue.located import Located, read_located
from headway.core.catalogue.quantity import Kind, parse_quantity
from headway.core.held_memory import RUNTIME_BYTES
from headway.core.node_span import NodeLink
from headway.core.placement_problem import ServingCluster

_MOST_DEVICES = 100_000
_FIELDS = ("device", "num_devices", "devices_per_node", "memory_per_device", "across_nodes")


def read_cluster_file(text: str, *, file: str, catalogue: Catalogue) -> tuple[ServingCluster, ...]:
    """One for each kind of device. InvalidArgumentError names file, line and field."""
    document = read_located(text, file=file)
    if "kinds" not in document.fields:
        return (_read_cluster(document, catalogue),)
    listed = document.fields["kinds"]
    if len(document.fields) > 1 or not listed.items:
        raise listed.fault(
            "should stand alone, with a kind at least", hint="Put each field into the kind that it is of."
        )
    clusters: dict[str, ServingCluster] = {}
    for item in listed.items:
        cluster = _read_cluster(item, catalogue)
        if cluster.device in clusters:
            raise item.fields["device"].fault(f"names '{cluster.device}' twice", hint="Write them as one kind.")
        clusters[cluster.device] = cluster
    return tuple(clusters.values())


def _read_cluster(document: Located, catalogue: Catalogue) -> ServingCluster:
    for name, field in document.fields.items():
        if name not in _FIELDS:
            raise field.fault("is unknown", hint=f"Known are {', '.join(_FIELDS)}.")
    for name in _FIELDS[:2]:
        if name not in document.fields:
            raise document.fault(f"lacks '{name}'", hint="Write device: V100-16 and num_devices: 16.")
    device = document.fields["device"]
    if device.text not in catalogue.devices:
        raise device.fault(
            f"names '{device.text}', which is not in the catalogue",
            hint=f"It has {', '.join(catalogue.devices)}; --catalogue adds your own.",
        )
    num_devices = _count(document.fields["num_devices"])
    per_node = num_devices
    if "devices_per_node" in document.fields:
        per_node = _count(document.fields["devices_per_node"])
    return ServingCluster(
        device=device.text,
        num_devices=num_devices,
        devices_per_node=per_node,
        memory_bytes=_memory_bytes(document, catalogue),
        across_nodes=_across_nodes(document, catalogue),
    )


def _across_nodes(document: Located, catalogue: Catalogue) -> NodeLink | None:
    field = document.fields.get("across_nodes")
    if field is None:
        return None
    if field.text not in catalogue.links:
        raise field.fault(
            f"names '{field.text}', which is no link of the catalogue",
            hint=f"It has {', '.join(catalogue.links)}; --catalogue adds your own.",
        )
    fabric = catalogue.links[field.text].fabric
    return NodeLink(name=field.text, latency_s=fabric.latency_s, bytes_per_s=fabric.bytes_per_s)


def _memory_bytes(document: Located, catalogue: Catalogue) -> int:
    if "memory_per_device" in document.fields:
        field = document.fields["memory_per_device"]
        try:
            return int(parse_quantity(field.text, Kind.BYTES))
        except ValueError as error:
            raise field.fault(str(error), hint="Write memory_per_device: 13 GiB.") from error
    device = document.fields["device"]
    memory = catalogue.devices[device.text].memory
    if memory is None:
        raise device.fault(
            f"is '{device.text}', of which the catalogue has no memory", hint="Add memory_per_device: 13 GiB."
        )
    kind = "cuda" if catalogue.devices[device.text].kind == "gpu" else "cpu"
    return int(memory.value) - RUNTIME_BYTES[kind]


def _count(field: Located) -> int:
    if not field.text.isdecimal() or not 1 <= int(field.text) <= _MOST_DEVICES:
        raise field.fault(
            f"should be a whole number from 1 to {_MOST_DEVICES}, not '{field.text}'", hint="Correct the line."
        )
    return int(field.text)
