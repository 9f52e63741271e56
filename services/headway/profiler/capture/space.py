"""Turns labelled views into an iteration space over the tensors behind them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import TypeAlias

from headway.core.iteration import Access, Dim, IterationSpace, Reduction
from headway.profiler.capture.view import View

Labels: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A view and the loop of each of its dims; the empty label where no loop runs, `y+r` for a window.

    Of one that is written, `reduced` has the loops along which elements meet in it.
    """

    view: View
    labels: Labels
    reduced: Mapping[str, Reduction] = field(default_factory=dict)


def iteration_space(
    reads: Sequence[Operand], writes: Sequence[Operand], *, extra: Iterable[Dim] = ()
) -> IterationSpace:
    """Splits labelled loops so that each runs along one dim of every tensor it indexes.

    A loop `m` over rows that one operand holds as batch and sequence becomes `m0` and `m1`.

    Args:
        extra: loops that no operand has a plain dim for, such as those of a window.
    """
    factors: dict[str, tuple[Dim, ...]] = {dim.name: (dim,) for dim in extra}
    operands = (*reads, *writes)
    sizes: dict[str, int] = {}
    for operand in operands:
        for label, size in zip(operand.labels, operand.view.shape, strict=True):
            if label and "+" not in label and size > sizes.get(label, 0):
                sizes[label] = size
    for label, size in sizes.items():
        factors[label] = _factor(label, size, operands)
    dims = tuple(dim for dims in factors.values() for dim in dims)
    written = tuple(_access(operand, factors) for operand in writes)
    return IterationSpace(
        dims=dims,
        reads=tuple(_access(operand, factors) for operand in reads),
        writes=written,
        reduced=tuple(dim.name for dim in dims if any(dim.name in access.reduced for access in written)),
    )


def _factor(label: str, size: int, operands: Sequence[Operand]) -> tuple[Dim, ...]:
    """The coarsest split of a loop that every operand's strands are made of; unsplit where their cuts don't nest."""
    cuts = {1, size}
    for operand in operands:
        for name, strands in zip(operand.labels, operand.view.strands or (), strict=False):
            if name == label:
                cuts.update(prod(strand.size for strand in strands[i:]) for i in range(1, len(strands)))
    ordered = sorted(cuts)
    if any(above % below for below, above in pairwise(ordered)):
        ordered = [1, size]
    sizes = [above // below for below, above in pairwise(ordered)][::-1]
    if len(sizes) < 2:
        return (Dim(label, size),)
    return tuple(Dim(f"{label}{i}", size) for i, size in enumerate(sizes))


def _access(operand: Operand, factors: dict[str, tuple[Dim, ...]]) -> Access:
    view = operand.view
    reduced = {dim.name: kind for label, kind in operand.reduced.items() for dim in factors.get(label, ())}
    lost = Access(tensor=view.base, dims=("",) * len(view.base_shape), reduced=reduced)
    if view.strands is None:
        return lost
    loops: list[list[tuple[int, int, str]]] = [[] for _ in view.base_shape]
    for label, strands in zip(operand.labels, view.strands, strict=True):
        if "+" in label and len(strands) == 1 and strands[0].dim >= 0:
            loops[strands[0].dim].append((strands[0].step, strands[0].size, label))
        dims = list(factors.get(label, ()))
        for strand in strands if dims else ():
            size = strand.size
            while size > 1:
                if not dims or size % dims[0].size:
                    return lost
                dim = dims.pop(0)
                size //= dim.size
                if strand.dim >= 0:
                    loops[strand.dim].append((strand.step * size, dim.size, dim.name))
    texts = tuple(_along(size, found) for size, found in zip(view.base_shape, loops, strict=True))
    return Access(tensor=view.base, dims=texts, reduced=reduced)


def _along(size: int, loops: Sequence[tuple[int, int, str]]) -> str:
    """The loops along a dim, the major ones first, with numbers for indices between them along which none runs.

    Args:
        loops: each with its step and its length.
    """
    parts: list[str] = []
    inner = 1
    for step, length, name in sorted(loops):
        if step > inner:
            parts.insert(0, str(step // inner))
        parts.insert(0, name)
        inner = step * length
    if parts and size > inner and size % inner == 0:
        parts.insert(0, str(size // inner))
    return "*".join(parts)
