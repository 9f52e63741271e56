"""The catalogue of hardware whose figures are known without measuring."""

import re
from dataclasses import dataclass

from headway.core.catalogue.device import Device, Link, Node
from headway.core.cluster import Hardware
from headway.core.errors import NotFoundError


def is_named(name: str, text: str) -> bool:
    """Whether a device's name is part of a longer one: 'A100' of 'A100-SXM4', not of 'A1000'."""
    return re.search(rf"{re.escape(name)}(?!\d)", text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Devices, links and nodes by name."""

    devices: dict[str, Device]
    links: dict[str, Link]
    nodes: dict[str, Node]

    def device_of(self, hardware: Hardware) -> Device:
        """The device of that kind with the longest name in the hardware's own: 'A100-SXM4-40GB' before 'A100'.

        Of equally long ones the last, which is the user's. An emulated one is the device of that very name.
        NotFoundError where none fits.
        """
        if hardware.is_emulated:
            return self.device(hardware.name)
        kind = "cpu" if hardware.device == "cpu" else "gpu"
        fitting = [
            (len(name), number, device)
            for number, device in enumerate(self.devices.values())
            for name in device.names
            if device.kind == kind and is_named(name, hardware.name)
        ]
        if not fitting:
            raise NotFoundError(
                f"The catalogue has no {kind} named '{hardware.name}'.", hint="Add it to a file for --catalogue."
            )
        return max(fitting, key=lambda found: found[:2])[2]

    def device(self, name: str) -> Device:
        """Returns a device by its name in the catalogue; NotFoundError where there is none."""
        if name not in self.devices:
            raise NotFoundError(
                f"The catalogue has no device '{name}'.", hint=f"It has {', '.join(self.devices)}.", field="device"
            )
        return self.devices[name]
