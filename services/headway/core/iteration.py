"""The iteration space of an operator: the nest of loops that it is, and how the loops index its operands.

A matrix product over a batch of sequences is `m0 m1 k, n k -> m0 m1 n` with `k` reduced. What a plan may split is read
from it: a dim of all operands is data parallel, a reduced one needs an all-reduce.
"""

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Dim:
    """A named loop and its length."""

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How an operand is indexed.

    Attributes:
        tensor: its name in the graph: never a view, always the tensor that has the bytes.
        dims: for each dim of the tensor the loop that runs along it. `a*b` is two loops, the major one first; `y+r` a
            window that slides with `y`; the empty string no loop: one index, or one found in the data.
    """

    tensor: str
    dims: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationSpace:
    """Attributes:
    dims: the loops.
    reads, writes: in the order of the operator's arguments and results.
    reduced: loops along which elements meet: summed away, or normalised over as in a softmax.
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
