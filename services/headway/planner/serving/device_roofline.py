"""The practical rates of devices and links: from the catalogue, or links as they were measured."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.catalogue import Catalogue, built_in_catalogue
from headway.core.cluster import Fabric, Hardware, PlanWorker
from headway.core.errors import InvalidArgumentError
from headway.core.hardware.profile import LinkProfile
from headway.core.links import Links, MeasuredLinks, UsualLinks


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The rates that a device reaches in practice; for a GPU the `usual` share of its data sheet, about 60 %.

    Attributes:
        flops: multiply-adds times two per second, in 16-bit floats; half of it in float32.
        bytes_per_s: memory bandwidth.
        step_overhead_s, sequence_overhead_s: scheduling and launching, per step and per sequence in it.
        table_entry_s: a rank's work on one entry of a block table, in every step.
        widens_quantized: whether int8 weights are computed with in float32.
    """

    flops: float
    bytes_per_s: float
    step_overhead_s: float
    sequence_overhead_s: float
    table_entry_s: float = 1.5e-9
    widens_quantized: bool = False

    def flops_in(self, *, is_float32: bool) -> float:
        return self.flops * (0.5 if is_float32 else 1.0)


_ALL = sys.maxsize
LOOPBACK = built_in_catalogue().links["loopback"].fabric
NVLINK = built_in_catalogue().links["NVLink 4"].fabric
PCIE_4 = built_in_catalogue().links["PCIe 4"].fabric
PCIE_5 = built_in_catalogue().links["PCIe 5"].fabric


def roofline_of(hardware: Hardware, catalogue: Catalogue | None = None) -> Roofline:
    """A GPU by its name, a CPU by its number of threads.

    Args:
        catalogue: None for the built-in one.

    Raises:
        InvalidArgumentError: the catalogue has no 16-bit rate of the device.
    """
    device = (catalogue or built_in_catalogue()).device_of(hardware)
    if "float16" not in device.peak:
        raise InvalidArgumentError(
            f"The catalogue has no float16 rate of {device.name}.",
            hint="Plans rest on it: add peak: {float16: ...} to the entry.",
            field=f"devices.{device.name}.peak",
        )
    practice, num_threads = device.practice, hardware.num_threads
    return Roofline(
        flops=device.reached_flops("float16", num_threads=num_threads),
        bytes_per_s=device.reached_bytes_per_s(num_threads=num_threads),
        step_overhead_s=practice.step.value,
        sequence_overhead_s=practice.sequence.value,
        table_entry_s=practice.table_entry.value,
        widens_quantized=device.kind == "cpu",
    )


def fabric_of(hardware: Hardware, catalogue: Catalogue | None = None) -> Fabric:
    """Returns the link that usually connects workers of that kind on one machine."""
    known = catalogue or built_in_catalogue()
    return known.links[known.device_of(hardware).link].fabric


def links_among(
    workers: Sequence[PlanWorker], profiles: Sequence[LinkProfile] = (), catalogue: Catalogue | None = None
) -> Links:
    """Returns the links between the workers of a group: as measured last on hardware and versions like theirs, else the
    usual.
    """
    hardware = workers[0].hardware
    num_on = Counter(worker.machine for worker in workers)
    return _links(
        [profile for profile in profiles if profile.machine.is_like(hardware)],
        usual=UsualLinks(fabric=fabric_of(hardware, catalogue)),
        num_near=min(num_on.values()),
        are_on_one=len(num_on) == 1,
    )


def links_on(device: str, profiles: Sequence[LinkProfile], catalogue: Catalogue) -> Links:
    """Returns the links between devices of one machine: as measured last on such, else the usual; NotFoundError for an
    unknown device.
    """
    return _links(
        [profile for profile in profiles if catalogue.device_of(profile.machine.hardware).name == device],
        usual=UsualLinks(fabric=catalogue.links[catalogue.device(device).link].fabric),
        num_near=_ALL,
        are_on_one=True,
    )


def _links(profiles: Sequence[LinkProfile], *, usual: UsualLinks, num_near: int, are_on_one: bool) -> Links:
    if not profiles:
        return usual
    newest = max(profiles, key=lambda profile: profile.created_at_s)
    return MeasuredLinks(
        profile_id=newest.machine.profile_id,
        device=newest.machine.hardware.device,
        fits=newest.links,
        usual=usual,
        num_near=num_near,
        are_on_one=are_on_one,
    )
