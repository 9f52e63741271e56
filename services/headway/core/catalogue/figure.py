"""A number, and how far it can be trusted."""

from dataclasses import dataclass
from enum import StrEnum


class Provenance(StrEnum):
    """The way in which a figure came to be known."""

    MEASURED = "measured"
    """By Headway, on the hardware in question."""
    IMPORTED = "imported"
    """Taken over from others: a data sheet, a paper, a file of their measurements."""
    ESTIMATED = "estimated"
    """Derived or assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A value in the base unit of its kind: bytes, bytes/s, FLOP/s, s, or a share of 1.

    Attributes:
        source: in words, e.g. the name of a data sheet or 'measured 2026-11-21'.
        relative_error: 0.1 is 10 %; 0 where the source states none.
    """

    value: float
    source: str
    provenance: Provenance = Provenance.IMPORTED
    relative_error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Shares of a peak over the size of the work, linear between `points` in the logarithms of both.

    Attributes:
        points: (size, share); sizes rise, and shares no faster, so that more work never takes less time.
        source, provenance, relative_error: as of a `Figure`, for every share.
    """

    points: tuple[tuple[float, float], ...]
    source: str
    provenance: Provenance = Provenance.IMPORTED
    relative_error: float = 0.0
