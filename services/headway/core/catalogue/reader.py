"""Catalogues from files: the built-in one, and the user's laid over it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from headway.core.catalogue.catalogue import Catalogue
from headway.core.catalogue.device import Device, Link, Node, Practice
from headway.core.catalogue.entry import (
    ORIGIN_FIELDS,
    Origin,
    Read,
    check_names,
    figure_in,
    read_choice,
    read_count,
    read_curve,
    read_flag,
    read_names,
    read_peak,
    read_reached,
    read_text,
)
from headway.core.catalogue.located import Located, read_located
from headway.core.catalogue.quantity import Kind
from headway.core.errors import InvalidArgumentError

BUILT_IN = Path(__file__).with_name("catalogue.yaml")

_TIME, _SHARE, _BANDWIDTH = figure_in(Kind.TIME), figure_in(Kind.SHARE), figure_in(Kind.BANDWIDTH)
_OPTIONAL = {"devices": {"memory", "reached", "bandwidth_limit", "per_thread"}}
_SECTIONS: dict[str, dict[str, Read]] = {
    "practices": {
        "usual": _SHARE,
        **dict.fromkeys(("launch", "step", "sequence", "table_entry"), _TIME),
        **dict.fromkeys(("compute", "narrow", "memory"), read_curve),
    },
    "devices": {
        "kind": read_choice("gpu", "cpu"),
        "names": read_names,
        "memory": figure_in(Kind.BYTES),
        "bandwidth": _BANDWIDTH,
        "bandwidth_limit": _BANDWIDTH,
        "per_thread": read_flag,
        "peak": read_peak,
        "reached": read_reached,
        "link": read_text,
        "practice": read_text,
    },
    "links": {"bandwidth": _BANDWIDTH, "reached": _BANDWIDTH, "latency": _TIME},
    "nodes": {
        "device": read_text,
        "num_devices": read_count,
        "link": read_text,
        "network": read_text,
        "num_ports": read_count,
        "source": read_text,
    },
}


@dataclass(frozen=True, slots=True)
class _Entry:
    """Fields that were read so far, and where the last file has the entry."""

    fields: dict[str, Any]
    item: Located


_Layers: TypeAlias = dict[str, dict[str, _Entry]]


@cache
def built_in_catalogue() -> Catalogue:
    return read_catalogue()


def read_catalogue(path: Path | None = None) -> Catalogue:
    """The built-in catalogue with the file's laid over it; InvalidArgumentError names file, line and field."""
    files = [BUILT_IN] if path is None else [BUILT_IN, path]
    try:
        texts = [(file.read_text(encoding="utf-8"), str(file)) for file in files]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(
            f"The catalogue {path} cannot be read: {error}.",
            hint="--catalogue and HEADWAY_CATALOGUE name a YAML file.",
            field="catalogue",
        ) from error
    return parse_catalogues(texts)


def parse_catalogues(texts: Sequence[tuple[str, str]]) -> Catalogue:
    """Merges catalogues, (text, file name) each. A later one is laid over those before it: new entries are added,
    fields of known ones replaced.
    """
    layers: _Layers = {section: {} for section in _SECTIONS}
    for text, file in texts:
        document = read_located(text, file=file)
        check_names(document.fields, _SECTIONS)
        for section, entries in document.fields.items():
            for name, item in entries.fields.items():
                _lay(layers[section], name, item, _SECTIONS[section])
    return _build(layers)


def _lay(known: dict[str, _Entry], name: str, item: Located, readers: dict[str, Read]) -> None:
    check_names(item.fields, dict.fromkeys((*readers, *ORIGIN_FIELDS)))
    origin = Origin.read(item.fields, default=Origin())
    before = known.pop(name).fields if name in known else {}  # the user's come last
    after = {field: readers[field](value, origin) for field, value in item.fields.items() if field in readers}
    for field, value in after.items():
        if isinstance(value, dict):  # figures by dtype
            after[field] = before.get(field, {}) | value
    known[name] = _Entry(before | after, item)


def _build(layers: _Layers) -> Catalogue:
    practices = {
        name: Practice(name=name, **_complete(entry, "practices")) for name, entry in layers["practices"].items()
    }
    links = {name: Link(name=name, **_complete(entry, "links")) for name, entry in layers["links"].items()}
    devices: dict[str, Device] = {}
    for name, entry in layers["devices"].items():
        fields = _complete(entry, "devices")
        _refer(entry, "link", links)
        _refer(entry, "practice", practices)
        if not fields["peak"]:
            raise entry.item.fault("has no peak rate", hint="Write peak: {float16: 125 TFLOP/s}.")
        devices[name] = Device(name=name, **fields | {"practice": practices[fields["practice"]]})
    nodes: dict[str, Node] = {}
    for name, entry in layers["nodes"].items():
        nodes[name] = Node(name=name, **_complete(entry, "nodes"))
        _refer(entry, "device", devices)
        _refer(entry, "link", links)
        _refer(entry, "network", links)
    return Catalogue(devices=devices, links=links, nodes=nodes)


def _complete(entry: _Entry, section: str) -> dict[str, Any]:
    optional = _OPTIONAL.get(section, set())
    missing = [field for field in _SECTIONS[section] if field not in entry.fields and field not in optional]
    if missing:
        raise entry.item.fault(f"lacks {', '.join(missing)}", hint="A new entry has to be complete; add it.")
    return entry.fields


def _refer(entry: _Entry, field: str, known: dict[str, Any]) -> None:
    if entry.fields[field] not in known:
        raise entry.item.fields.get(field, entry.item).fault(
            f"names '{entry.fields[field]}', which is not in the catalogue", hint=f"Known are {', '.join(known)}."
        )
