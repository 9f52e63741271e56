"""Parts of tensors that are some ranges of each dim. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from math import prod

Ranges = tuple[tuple[int, int], ...]
"""Of a dim, ascending: of each range the first element and the one behind the last; no two ranges touch."""
Region = tuple[Ranges, ...]
"""Of each dim its ranges. Elements of a part lie in it in their order, with nothing for what is between ranges."""


def box(shape: Sequence[int]) -> Region:
    """All of a tensor."""
    return tuple(((0, size),) for size in shape)


def lengths(region: Region) -> tuple[int, ...]:
    return tuple(map(_length, region))


def num_elements(region: Region) -> int:
    return prod(lengths(region))


def overlap(one: Region, other: Region) -> Region | None:
    """What is in both; None where nothing is."""
    found = tuple(_merged(_common(a, b)) for a, b in zip(one, other, strict=True))
    return found if all(found) else None


def taken(ranges: Ranges, places: Iterable[tuple[int, int]]) -> Ranges:
    """Some of the elements of ranges: those from some place among them on to before another, for each of these."""
    found = []
    for first, end in places:
        at = 0
        for begin, stop in ranges:
            low, high = max(first, at), min(end, at + stop - begin)
            if low < high:
                found.append((begin + low - at, begin + high - at))
            at += stop - begin
    return _merged(found)


def split(region: Region, dim: int, count: int) -> tuple[Region, ...]:
    """So many parts along a dim, as equal as it divides."""
    size = _length(region[dim])
    bounds = [(at * size // count, (at + 1) * size // count) for at in range(count)]
    return tuple((*region[:dim], taken(region[dim], [each]), *region[dim + 1 :]) for each in bounds)


def copies(source: Region, target: Region) -> list[list[tuple[int, int, int]]]:
    """What of a part goes where in another, along each dim: from which place on, to which place on, and how many
    elements."""
    return [list(_copies(a, b)) for a, b in zip(source, target, strict=True)]


def is_covered(region: Region, parts: Sequence[Region]) -> bool:
    """Whether some parts have all of a region between them."""
    for at, part in enumerate(parts):
        common = overlap(region, part)
        if common is None:
            continue
        rest = region
        for dim, (own, kept) in enumerate(zip(region, common, strict=True)):
            beside = _without(own, kept)
            if beside and not is_covered((*rest[:dim], beside, *rest[dim + 1 :]), parts[at + 1 :]):
                return False
            rest = (*rest[:dim], kept, *rest[dim + 1 :])
        return True
    return False


def _length(ranges: Ranges) -> int:
    return sum(end - first for first, end in ranges)


def _common(one: Ranges, other: Ranges) -> Iterator[tuple[int, int]]:
    pairs = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return ((first, end) for first, end in pairs if first < end)


def _without(ranges: Ranges, gone: Ranges) -> Ranges:
    kept = list(ranges)
    for first, end in gone:
        sides = [side for begin, stop in kept for side in ((begin, min(stop, first)), (max(begin, end), stop))]
        kept = [(begin, stop) for begin, stop in sides if begin < stop]
    return tuple(kept)


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for first, end in ranges:
        if found and found[-1][1] == first:
            found[-1] = found[-1][0], end
        else:
            found.append((first, end))
    return tuple(found)


def _copies(source: Ranges, target: Ranges) -> Iterator[tuple[int, int, int]]:
    at = 0
    for a, b in source:
        to = 0
        for c, d in target:
            first, end = max(a, c), min(b, d)
            if first < end:
                yield at + first - a, to + first - c, end - first
            to += d - c
        at += b - a
