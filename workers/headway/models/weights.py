"""Maps stored tensors to the parameters that they fill, with the rows and columns that a rank takes."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeAlias

from torch import Tensor

from headway.core.parallel_config import Span


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of one dimension of a stored tensor that a rank holds.

    Attributes:
        size: the size of the whole dimension.
    """

    span: Span
    size: int

    @classmethod
    def whole(cls, size: int) -> Self:
        return cls(Span(0, size), size)

    def __len__(self) -> int:
        return len(self.span)

    def times(self, unit: int) -> "Piece":
        """The same, counted in smaller units: a head is `head_dim` rows."""
        return Piece(Span(self.span.start * unit, self.span.stop * unit), self.size * unit)

    def within(self, size: int, *, start: int) -> "Piece":
        """The same in a fused dimension of `size`, where this one begins at `start`."""
        return Piece(Span(start + self.span.start, start + self.span.stop), size)


@dataclass(frozen=True, slots=True)
class Part:
    """A parameter, or a view into a fused one, and what of a stored tensor fills it.

    Attributes:
        shape: of the stored tensor.
        index: of the piece that fills the view.
    """

    view: Tensor
    shape: tuple[int, ...]
    index: tuple[slice, ...]

    @classmethod
    def of(cls, view: Tensor, *pieces: Piece) -> Self:
        """`pieces`: one a dimension."""
        return cls(view, tuple(piece.size for piece in pieces), tuple(piece.span.as_slice() for piece in pieces))

    @classmethod
    def whole(cls, view: Tensor) -> Self:
        return cls.of(view, *map(Piece.whole, view.shape))


NamedPart: TypeAlias = tuple[str, Part]
"""A stored tensor's name and a part that it fills."""

Tensors: TypeAlias = dict[str, list[Part]]
"""All parts that each stored tensor fills."""


def by_name(parts: Iterable[NamedPart]) -> Tensors:
    tensors: defaultdict[str, list[Part]] = defaultdict(list)
    for name, part in parts:
        tensors[name].append(part)
    return dict(tensors)


def under(prefix: str, parts: Iterable[NamedPart]) -> Iterable[NamedPart]:
    """The parts with `prefix` and a dot before their names."""
    return ((f"{prefix}.{name}", part) for name, part in parts)
