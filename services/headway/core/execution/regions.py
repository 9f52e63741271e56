"""Parts of tensors that are a range of each dim. Pure."""

from collections.abc import Sequence
from math import prod

Region = tuple[tuple[int, int], ...]
"""Of each dim the first element and the one behind the last."""


def lengths(region: Region) -> tuple[int, ...]:
    return tuple(end - first for first, end in region)


def num_elements(region: Region) -> int:
    return prod(lengths(region))


def overlap(one: Region, other: Region) -> Region | None:
    """What is in both; None where nothing is."""
    found = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return found if all(first < end for first, end in found) else None


def inside(part: Region, whole: Region) -> tuple[tuple[int, int], ...]:
    """Where a part begins in a whole that has all of it, and its length, for each dim."""
    return tuple((first - start, end - first) for (first, end), (start, _) in zip(part, whole, strict=True))


def split(region: Region, dim: int, count: int) -> tuple[Region, ...]:
    """So many equal parts along a dim that divides."""
    first, end = region[dim]
    size = (end - first) // count
    parts = ((first + at * size, first + (at + 1) * size) for at in range(count))
    return tuple((*region[:dim], part, *region[dim + 1 :]) for part in parts)


def is_covered(region: Region, parts: Sequence[Region]) -> bool:
    """Whether some parts have all of a region between them."""
    for at, part in enumerate(parts):
        common = overlap(region, part)
        if common is None:
            continue
        rest = region
        for dim, ((first, end), (begin, stop)) in enumerate(zip(region, common, strict=True)):
            beside = [
                (*rest[:dim], each, *rest[dim + 1 :]) for each in ((first, begin), (stop, end)) if each[0] < each[1]
            ]
            if not all(is_covered(each, parts[at + 1 :]) for each in beside):
                return False
            rest = (*rest[:dim], (begin, stop), *rest[dim + 1 :])
        return True
    return False
