"""Fields of an entry of the catalogue, read and checked one by one."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from headway.core.catalogue.figure import Curve, Figure, Provenance
from headway.core.catalogue.located import Located
from headway.core.catalogue.quantity import Kind, parse_quantity

DTYPES = ("float64", "float32", "tf32", "float16", "bfloat16", "float8", "float4", "int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin that an entry's figures take over where they name none themselves."""

    source: str = ""
    provenance: Provenance = Provenance.IMPORTED
    relative_error: float = 0.0

    @classmethod
    def read(cls, fields: dict[str, Located], *, default: "Origin") -> "Origin":
        origin = default
        if "source" in fields:
            origin = replace(origin, source=read_text(fields["source"], origin))
        if "provenance" in fields:
            origin = replace(origin, provenance=_read_provenance(fields["provenance"]))
        if "error" in fields:
            origin = replace(origin, relative_error=_quantity(fields["error"], Kind.SHARE))
        return origin


ORIGIN_FIELDS = ("source", "provenance", "error")
Read: TypeAlias = Callable[[Located, Origin], Any]


def check_names(fields: dict[str, Located], known: Iterable[str]) -> None:
    """InvalidArgumentError for a field that is not `known`."""
    names = list(known)
    for name, item in fields.items():
        if name not in names:
            raise item.fault("is unknown", hint=f"Known here are {', '.join(names)}.")


def figure_in(kind: Kind) -> Read:
    def read(item: Located, origin: Origin) -> Figure:
        if isinstance(item.value, dict):
            check_names(item.fields, ("value", *ORIGIN_FIELDS))
            if "value" not in item.fields:
                raise item.fault("has no value", hint=f"Write {{value: {kind.value[1]}, source: ...}}.")
            origin, number = Origin.read(item.fields, default=origin), item.fields["value"]
        else:
            number = item
        _check_source(item, origin)
        return Figure(
            value=_quantity(number, kind),
            source=origin.source,
            provenance=origin.provenance,
            relative_error=origin.relative_error,
        )

    return read


def read_peak(item: Located, origin: Origin) -> dict[str, Figure]:
    check_names(item.fields, DTYPES)
    read = figure_in(Kind.COMPUTE)
    return {dtype: read(figure, origin) for dtype, figure in item.fields.items()}


def read_reached(item: Located, origin: Origin) -> dict[str, Figure]:
    """FLOP/s by dtype, and `bandwidth`."""
    check_names(item.fields, (*DTYPES, "bandwidth", *ORIGIN_FIELDS))
    origin = Origin.read(item.fields, default=origin)
    kinds = dict.fromkeys(DTYPES, Kind.COMPUTE) | {"bandwidth": Kind.BANDWIDTH}
    return {name: figure_in(kinds[name])(rate, origin) for name, rate in item.fields.items() if name in kinds}


def read_curve(item: Located, origin: Origin) -> Curve:
    """Pairs of a size and a share, or {points: pairs, source: ...}."""
    if isinstance(item.value, dict):
        check_names(item.fields, ("points", *ORIGIN_FIELDS))
        if "points" not in item.fields:
            raise item.fault("has no points", hint="Write {points: [[1e6, 10 %], [1e9, 80 %]], source: ...}.")
        origin, item = Origin.read(item.fields, default=origin), item.fields["points"]
    _check_source(item, origin)
    points: list[tuple[float, float]] = []
    for pair in item.items:
        if len(pair.items) != 2:
            raise pair.fault("should be a size and a share", hint="Write it as [1e6, 10 %].")
        size, share = pair.items
        points.append((_number(size), _quantity(share, Kind.SHARE)))
        if len(points) > 1:
            _check_rising(pair, *points[-2:])
    if not points:
        raise item.fault("has no points", hint="Give at least one, as [[1e6, 10 %]].")
    return Curve(
        points=tuple(points),
        source=origin.source,
        provenance=origin.provenance,
        relative_error=origin.relative_error,
    )


def read_text(item: Located, _origin: Origin) -> str:
    if not item.text.strip():
        raise item.fault("is empty", hint="Fill it in.")
    return item.text


def read_names(item: Located, _origin: Origin) -> tuple[str, ...]:
    return tuple(name.text for name in item.items)


def read_count(item: Located, _origin: Origin) -> int:
    if not item.text.isdecimal() or int(item.text) < 1:
        raise item.fault(f"should be a whole number from 1, not '{item.text}'")
    return int(item.text)


def read_flag(item: Located, _origin: Origin) -> bool:
    return bool(read_choice("true", "false")(item, _origin) == "true")


def read_choice(*choices: str) -> Read:
    def read(item: Located, _origin: Origin) -> str:
        if item.text not in choices:
            raise item.fault(f"should be {' or '.join(choices)}, not '{item.text}'")
        return item.text

    return read


def _read_provenance(item: Located) -> Provenance:
    return Provenance(read_choice(*(provenance.value for provenance in Provenance))(item, Origin()))


def _quantity(item: Located, kind: Kind) -> float:
    try:
        return parse_quantity(item.text, kind)
    except ValueError as error:
        raise item.fault(str(error), hint="Correct the number or its unit.") from error


def _number(item: Located) -> float:
    try:
        return parse_quantity(f"{float(item.text)} B", Kind.BYTES)
    except ValueError as error:
        raise item.fault(f"should be a positive number, not '{item.text}'") from error


def _check_rising(item: Located, before: tuple[float, float], after: tuple[float, float]) -> None:
    if after[0] <= before[0] or not 1 <= after[1] / before[1] <= after[0] / before[0]:
        raise item.fault(
            "does not go on from the point before it",
            hint="Sizes rise, shares do not fall, and rise no faster than sizes: more work does not take less time.",
        )


def _check_source(item: Located, origin: Origin) -> None:
    if not origin.source:
        raise item.fault(
            "has no source", hint="Say where the figure is from: `source: data sheet of ...` for it or for its entry."
        )
