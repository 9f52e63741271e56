"""A hardware profile as tables."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from headway.core.hardware.family import COLLECTIVES, COMPUTE, STREAMS
from headway.core.hardware.lattice import Lattice
from headway.core.hardware.profile import HardwareProfile, HardwareSummary, Machine
from headway.core.units import format_bytes, format_duration

_ROWS = (1, 8, 64, 256, 1024)


def hardware_view(profile: HardwareProfile) -> RenderableType:
    parts: list[RenderableType] = [_title(profile.machine)]
    parts += [_products(profile, dtype) for dtype in ("float32", "bfloat16") if profile.has("matmul", dtype)]
    if streams := [family.name for family in STREAMS if profile.has(family.name, "float32")]:
        parts.append(_streams(profile, streams))
    parts.append(_families(profile))
    if profile.links:
        parts.append(_links(profile))
    return Group(*parts)


def hardware_table(summaries: Sequence[HardwareSummary]) -> Table:
    """Tables hardware profiles, one a row."""
    table = _table("profile", "of", "hardware", "threads", "machine", "cells", "origin")
    for summary in summaries:
        machine = summary.machine
        table.add_row(
            summary.profile_id,
            "hardware",
            machine.hardware.name,
            str(machine.hardware.num_threads),
            machine.machine,
            str(summary.num_timings),
            "measured, stale" if summary.is_stale else "measured",
        )
    return table


def _title(machine: Machine) -> str:
    hardware = machine.hardware
    versions = ", ".join(f"{name} {version}" for name, version in hardware.software.items())
    return (
        f"{machine.profile_id}: {hardware.name} ({machine.machine}), {hardware.num_threads} threads, "
        f"cache {format_bytes(machine.cache_bytes)}\n{versions}"
    )


def _products(profile: HardwareProfile, dtype: str) -> Table:
    lattice = profile.lattice("matmul", dtype)
    table = _table(f"{dtype} GFLOP/s, rows", *map(str, _ROWS))
    for width in lattice.axes[1]:
        rates = [2 * m * width * width / lattice.at((m, width, width)) / 1e9 for m in _ROWS]
        table.add_row(f"{width} x {width}", *(f"{rate:.1f}" for rate in rates))
    return table


def _streams(profile: HardwareProfile, known: Sequence[str]) -> Table:
    sizes = profile.lattice(known[0]).axes[0]
    table = _table("GB/s over", *map(format_bytes, sizes))
    for name in known:
        lattice = profile.lattice(name)
        table.add_row(name.removeprefix("stream_"), *(f"{size / lattice.at((size,)) / 1e9:.1f}" for size in sizes))
    return table


def _families(profile: HardwareProfile) -> Table:
    """Tables the operator families: the least time of a call, and how well neighbouring points predict each other."""
    table = _table("operator", "points", "smallest", "largest", "error", "what")
    for family in COMPUTE:
        for dtype in family.dtypes:
            if profile.has(family.name, dtype):
                lattice = profile.lattice(family.name, dtype)
                table.add_row(
                    family.name if dtype == "float32" else f"{family.name}, {dtype}",
                    str(len(lattice.log_seconds)),
                    format_duration(_at(lattice, 0)),
                    format_duration(_at(lattice, -1)),
                    f"{lattice.relative_error:.0%}",
                    family.about,
                )
    return table


def _links(profile: HardwareProfile) -> Table:
    table = _table("collective", "over", "ranks", "latency", "rate", "error", "piecewise", "error")
    for link in profile.links:
        table.add_row(
            COLLECTIVES[link.collective].operation,
            COLLECTIVES[link.collective].transport,
            str(link.num_ranks),
            format_duration(link.latency_s),
            f"{link.bytes_per_s / 1e9:.2f} GB/s",
            f"{link.relative_error:.0%}",
            f"{len(link.curve.sizes)} points",
            f"{link.curve.relative_error:.0%}",
        )
    return table


def _at(lattice: Lattice, end: int) -> float:
    return lattice.at([axis[end] for axis in lattice.axes])


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number and name != "what" else "left", overflow="fold")
    return table
