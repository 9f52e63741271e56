"""The command `headway profile catalogue`."""

import json
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from headway.cli.options import AsJson, CatalogueFile
from headway.core.catalogue import Catalogue, Device, Figure, built_in_catalogue, read_catalogue
from headway.core.catalogue.quantity import Kind, format_quantity
from headway.core.codec import to_document
from headway.core.errors import NotFoundError


def _known_names(incomplete: str) -> list[str]:
    known = built_in_catalogue()
    return [name for name in (*known.devices, *known.links, *known.nodes) if name.startswith(incomplete)]


def show_catalogue(
    name: Annotated[
        str | None,
        typer.Argument(help="A device, link or node: where each of its figures is from.", autocompletion=_known_names),
    ] = None,
    *,
    catalogue: CatalogueFile = None,
    as_json: AsJson = False,
) -> None:
    """List hardware and fabrics that are known without measuring, and where each figure is from."""
    known = read_catalogue(catalogue)
    chosen = known if name is None else _only(known, name)
    if as_json:
        typer.echo(json.dumps(to_document(chosen), indent=2))
        return
    console = Console()
    for table in _overview(known) if name is None else [_figures(chosen)]:
        console.print(table)


def _only(known: Catalogue, name: str) -> Catalogue:
    names = (*known.devices, *known.links, *known.nodes)
    if name not in names:
        raise NotFoundError(f"The catalogue has no '{name}'.", hint=f"It has {', '.join(names)}.", field="name")
    return Catalogue(
        devices={key: device for key, device in known.devices.items() if key == name},
        links={key: link for key, link in known.links.items() if key == name},
        nodes={key: node for key, node in known.nodes.items() if key == name},
    )


def _overview(known: Catalogue) -> list[Table]:
    devices = _table("device", "GB", "GB/s", "TFLOP/s: 32", "16", "8 bit", "link", "source")
    for device in known.devices.values():
        peak = device.peak
        rates = (peak.get("float32"), peak.get("float16"), peak.get("float8", peak.get("int8")))
        devices.add_row(
            f"{device.name}, a thread" if device.per_thread else device.name,
            _in(1e9, device.memory),
            _in(1e9, device.bandwidth),
            *(_in(1e12, rate) for rate in rates),
            device.link,
            device.bandwidth.source,
        )
    links = _table("link", "bandwidth", "reached", "latency", "source")
    for link in known.links.values():
        links.add_row(
            link.name,
            format_quantity(link.bandwidth.value, Kind.BANDWIDTH),
            format_quantity(link.reached.value, Kind.BANDWIDTH),
            format_quantity(link.latency.value, Kind.TIME),
            link.bandwidth.source,
        )
    nodes = _table("node", "devices", "link", "network", "source")
    for node in known.nodes.values():
        devices_in = f"{node.num_devices} x {node.device}"
        nodes.add_row(node.name, devices_in, node.link, f"{node.num_ports} x {node.network}", node.source)
    return [devices, links, nodes]


def _figures(chosen: Catalogue) -> Table:
    table = _table("figure", "value", "origin", "error", "source")
    for device in chosen.devices.values():
        _add_device(table, device)
    for link in chosen.links.values():
        _add(table, "bandwidth", link.bandwidth, Kind.BANDWIDTH)
        _add(table, "reached", link.reached, Kind.BANDWIDTH)
        _add(table, "latency", link.latency, Kind.TIME)
    for node in chosen.nodes.values():
        for field, value in to_document(node).items():
            table.add_row(field, str(value), "", "", node.source)
    return table


def _add_device(table: Table, device: Device) -> None:
    if device.memory is not None:
        _add(table, "memory", device.memory, Kind.BYTES)
    _add(table, "bandwidth", device.bandwidth, Kind.BANDWIDTH)
    for dtype, rate in device.peak.items():
        _add(table, f"peak {dtype}", rate, Kind.COMPUTE)
    for field, rate in device.reached.items():
        _add(table, f"reached {field}", rate, Kind.BANDWIDTH if field == "bandwidth" else Kind.COMPUTE)
    practice = device.practice
    _add(table, "usual share", practice.usual, Kind.SHARE)
    for field in ("launch", "step", "sequence", "table_entry"):
        _add(table, field, getattr(practice, field), Kind.TIME)
    for field in ("compute", "narrow", "memory"):
        curve = getattr(practice, field)
        shares = " to ".join(format_quantity(curve.points[end][1], Kind.SHARE) for end in (0, -1))
        table.add_row(f"{field} curve", shares, curve.provenance, _error(curve.relative_error), curve.source)


def _add(table: Table, name: str, figure: Figure, kind: Kind) -> None:
    value = format_quantity(figure.value, kind)
    table.add_row(name, value, figure.provenance, _error(figure.relative_error), figure.source)


def _in(unit: float, figure: Figure | None) -> str:
    return "" if figure is None else f"{figure.value / unit:.4g}"


def _error(relative_error: float) -> str:
    return f"{relative_error:.0%}" if relative_error else ""


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=name != "source", overflow="fold")
    return table
