"""Round robin: every model on as many single devices as every other, as far as memory goes. It asks for no traffic."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.device_kind import DeviceKind
from headway.core.placement import GroupShape, PlacedGroup, PlacedModel, Placement

DEVICE = GroupShape(pp=1, op=1)


def uniform_replication(
    models: Sequence[PlacedModel], *, num_devices: int, memory_bytes: int, device: str = ""
) -> Placement:
    """Device d of D begins with model d M / D of M and takes models in their order, in a ring, while they fit.

    So neighbours share models, as in the AlpaServe artifact. Models that don't fit a device are left out.

    Args:
        device: the kind of devices, where there are several.
    """
    shape = replace(DEVICE, device=device)
    needed = {model.name: model.needed_bytes(shape, memory_bytes) for model in models}
    weight_bytes = {name: each for name, each in needed.items() if each is not None and each <= memory_bytes}
    names = list(weight_bytes)
    groups = []
    for number in range(num_devices):
        begin = number * len(names) // num_devices
        held, free_bytes = [], memory_bytes
        for name in (*names[begin:], *names[:begin]):
            if weight_bytes[name] <= free_bytes:
                held.append(name)
                free_bytes -= weight_bytes[name]
        groups.append(PlacedGroup(shape=shape, models=tuple(held)))
    return Placement(groups=tuple(groups))


def uniform_on_kinds(models: Sequence[PlacedModel], kinds: Sequence[DeviceKind]) -> Placement:
    """Places models on each kind of device as if there were no other."""
    placements = (
        uniform_replication(models, num_devices=kind.num_devices, memory_bytes=kind.memory_bytes, device=kind.device)
        for kind in kinds
    )
    return Placement(groups=tuple(group for placement in placements for group in placement.groups))
