"""Follows views to the tensor that they view: which index of it a dim of the view runs along.

A dim of a view is a product of *strands*: a strand is a run of indices along one dim of the base. `[2, 6]` reshaped to
`[12]` is one dim of two strands; `[12]` reshaped to `[2, 6]` two dims of one strand each, both along dim 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

BROADCAST = -1
ELSEWHERE = -2


@dataclass(frozen=True, slots=True)
class Strand:
    """A run of indices: `size` of them along the base's `dim`, `step` apart; a repetition of one element has dim
    BROADCAST.

    One that begins where no such part of the dim begins has dim ELSEWHERE: cutting the dim would not cut it.
    """

    dim: int
    size: int
    step: int


Strands: TypeAlias = tuple[Strand, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view of a tensor, and how each of its dims runs along the tensor's.

    Attributes:
        base: name of the tensor.
        base_shape, shape: of the tensor and of the view.
        strands: of each dim of the view, the major ones first; None where the view can't be followed.
    """

    base: str
    dtype: str
    base_shape: tuple[int, ...]
    shape: tuple[int, ...]
    strands: tuple[Strands, ...] | None

    @classmethod
    def whole(cls, name: str, shape: Sequence[int], dtype: str) -> View:
        """Makes the view of a whole tensor as it is."""
        sizes = tuple(shape)
        strands = tuple((Strand(dim, size, 1),) if size != 1 else () for dim, size in enumerate(sizes))
        return cls(base=name, dtype=dtype, base_shape=sizes, shape=sizes, strands=strands)

    @property
    def num_distinct(self) -> int:
        """Number of elements of the base that the view shows."""
        if self.strands is None:
            return min(prod(self.shape), prod(self.base_shape))
        return prod(strand.size for strands in self.strands for strand in strands if strand.dim != BROADCAST)

    def lost(self, shape: Sequence[int]) -> View:
        """Makes a view whose order of elements is unknown."""
        return replace(self, shape=tuple(shape), strands=None)

    def permute(self, order: Sequence[int]) -> View:
        if self.strands is None:
            return self.lost([self.shape[dim] for dim in order])
        strands = self.strands
        return replace(
            self, shape=tuple(self.shape[dim] for dim in order), strands=tuple(strands[dim] for dim in order)
        )

    def reshape(self, shape: Sequence[int]) -> View:
        sizes = tuple(shape)
        if self.strands is None:
            return self.lost(sizes)
        return replace(self, shape=sizes, strands=_regroup([s for strands in self.strands for s in strands], sizes))

    def expand(self, shape: Sequence[int]) -> View:
        """Broadcasts dims of size 1, and new ones in front, to `shape`."""
        sizes = tuple(shape)
        if self.strands is None:
            return self.lost(sizes)
        strands = ((),) * (len(sizes) - len(self.shape)) + self.strands
        grown = tuple(
            old if old or size == 1 else (Strand(BROADCAST, size, 0),) for old, size in zip(strands, sizes, strict=True)
        )
        return replace(self, shape=sizes, strands=grown)

    def narrow(self, dim: int, size: int, *, start: int = 0, step: int = 1) -> View:
        """Takes every `step`-th index of one dim from `start` on, `size` of them."""
        sizes = (*self.shape[:dim], size, *self.shape[dim + 1 :])
        if self.strands is None or sizes == self.shape:
            return replace(self, shape=sizes)
        old = self.strands[dim]
        if size != 1 and len(old) != 1:
            return self.lost(sizes)
        is_part = start % (size * step) < step
        new = () if size == 1 else (Strand(old[0].dim if is_part else ELSEWHERE, size, old[0].step * step),)
        return replace(self, shape=sizes, strands=(*self.strands[:dim], new, *self.strands[dim + 1 :]))

    def select(self, dim: int) -> View:
        """Takes one index of a dim and drops the dim."""
        sizes = (*self.shape[:dim], *self.shape[dim + 1 :])
        if self.strands is None:
            return self.lost(sizes)
        return replace(self, shape=sizes, strands=(*self.strands[:dim], *self.strands[dim + 1 :]))


def _regroup(strands: list[Strand], sizes: tuple[int, ...]) -> tuple[Strands, ...] | None:
    """Deals the strands out to dims of other sizes, split where a dim needs a part; None where none fits."""
    rest, groups = list(reversed(strands)), []
    for wanted in sizes:
        size, group = wanted, list[Strand]()
        while size > 1:
            if not rest:
                return None
            strand = rest.pop()
            if strand.size > size:
                if strand.size % size:
                    return None
                minor = strand.size // size
                rest.append(replace(strand, size=minor))
                strand = replace(strand, size=size, step=strand.step * minor)
            elif size % strand.size:
                return None
            group.append(strand)
            size //= strand.size
        groups.append(tuple(group))
    return tuple(groups)
