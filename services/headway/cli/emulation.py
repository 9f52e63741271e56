"""The devices that `headway up --emulate` asks for."""

import re

from headway.core.catalogue import Catalogue, Device
from headway.core.cluster import Hardware
from headway.core.deployment import EmulatedDevices
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.core.units import format_bytes


def parse_emulation(text: str, *, memory_bytes: int | None, catalogue: Catalogue) -> tuple[EmulatedDevices, ...]:
    """Reads `8xV100,4xA100-40`: numbers of devices of the catalogue, by its name for them or a vendor's.

    Args:
        memory_bytes: memory that each device may use; None for all that it has.

    Raises:
        InvalidArgumentError: the text is malformed, or a device has less memory.
        NotFoundError: the catalogue has no such GPU.
    """
    kinds = [_parse(part, memory_bytes, catalogue) for part in text.split(",")]
    if len({kind.name for kind in kinds}) < len(kinds):
        raise InvalidArgumentError(
            f"--emulate {text} has a kind of device twice.",
            hint="Write each once: 8xV100,4xA100-40.",
            field="--emulate",
        )
    return tuple(kinds)


def _parse(text: str, memory_bytes: int | None, catalogue: Catalogue) -> EmulatedDevices:
    found = re.fullmatch(r"([1-9]\d*)\s*x\s*(\S.*)", text.strip())
    if found is None:
        raise InvalidArgumentError(
            f"--emulate {text} is not a number of devices.",
            hint="Write it as 16xV100, or 8xV100,4xA100-40.",
            field="--emulate",
        )
    device = _find(found[2], catalogue)
    if device.memory is None:
        raise InvalidArgumentError(
            f"The catalogue does not say how much memory a {device.name} has.",
            hint="Add it to a file for --catalogue.",
            field="--emulate",
        )
    has_bytes = int(device.memory.value)
    if memory_bytes is not None and memory_bytes > has_bytes:
        raise InvalidArgumentError(
            f"A {device.name} has {format_bytes(has_bytes)}, not {format_bytes(memory_bytes)}.",
            hint="Give less --memory, or leave it out.",
            field="--memory",
        )
    return EmulatedDevices(count=int(found[1]), name=device.name, memory_bytes=memory_bytes or has_bytes)


def _find(name: str, catalogue: Catalogue) -> Device:
    """Looks a GPU up in the catalogue; a generic entry that stands for any GPU is not found."""
    known = [device for device in catalogue.devices.values() if device.kind == "gpu" and "" not in device.names]
    if name in (device.name for device in known):
        return catalogue.device(name)
    device = catalogue.device_of(Hardware(device="cuda", name=name, num_threads=1, memory_bytes=1))
    if device not in known:
        raise NotFoundError(
            f"The catalogue has no GPU named '{name}'.",
            hint=f"It has {', '.join(device.name for device in known)}; a file for --catalogue adds others.",
            field="--emulate",
        )
    return device
