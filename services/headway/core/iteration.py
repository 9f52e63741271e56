"""The iteration space of an operator: the nest of loops that it is, and how the loops index its operands.

A matrix product over a batch of sequences is `m0 m1 k, n k -> m0 m1 n` with `k` reduced. What a plan may split is read
from it: a dim of all operands is data parallel, a reduced one needs an all-reduce.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from math import prod


@dataclass(frozen=True, slots=True)
class Dim:
    """A named loop and its length."""

    name: str
    size: int


class Reduction(StrEnum):
    """The way in which elements along a loop are reduced in an operator's output: it says what has to follow when the
    loop is split.

    SUM, MEAN, MAX, MIN and PRODUCT join partial results by an all-reduce. MOMENTS (normalisations, variances) need sums
    over all elements before any of them is computed: an all-reduce of a few numbers a row. WHOLE (softmax inside
    attention, sorts, scans) needs all the elements at once, so that the loop cannot be split.
    """

    SUM = "sum"
    MEAN = "mean"
    MAX = "max"
    MIN = "min"
    PRODUCT = "product"
    MOMENTS = "moments"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The indexing of one operand by an operator's loops.

    Attributes:
        tensor: its name in the graph: never a view, always the tensor that has the bytes.
        dims: for each dim of the tensor the loop that runs along it. `a*b` is two loops, the major one first; `y+r` a
            window that slides with `y`; a number so many indices along which no loop runs, as in `3*h` of an operand
            that is one of three parts; the empty string no loop: one index, or one found in the data.
        reduced: of an operand that is written, the loops along which elements meet in it, and how.
    """

    tensor: str
    dims: tuple[str, ...]
    reduced: dict[str, Reduction] = field(default_factory=dict)

    @property
    def loops(self) -> frozenset[str]:
        """The loops that index the operand."""
        return frozenset(loop for dim in self.dims for loop in loops_of(dim))


@cache
def loops_of(dim: str) -> tuple[str, ...]:
    """The loops that run along a dim of an operand, the major ones first."""
    return tuple(loop for part in dim.split("*") for loop in part.split("+") if loop and not loop.isdigit())


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationSpace:
    """Attributes:
    dims: the loops.
    reads, writes: in the order of the operator's arguments and results.
    reduced: loops along which elements meet in any operand that is written.
    """

    dims: tuple[Dim, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    reduced: tuple[str, ...] = ()

    @property
    def volume(self) -> int:
        """How often the innermost body runs."""
        return prod(dim.size for dim in self.dims)

    def __str__(self) -> str:
        reads, writes = (", ".join(" ".join(d or "." for d in access.dims) for access in side) for side in self._sides)
        return f"{reads} -> {writes}"

    @property
    def _sides(self) -> tuple[tuple[Access, ...], ...]:
        return self.reads, self.writes
