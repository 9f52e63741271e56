"""Sets of operators as the bits of an int. Pure."""

from collections.abc import Iterator, Sequence


def bits(members: int) -> Iterator[int]:
    """The operators of a set, ascending."""
    while members:
        lowest = members & -members
        yield lowest.bit_length() - 1
        members ^= lowest


def component_of(members: int, neighbours: Sequence[int]) -> int:
    """All members that edges connect with the first of them.

    Args:
        neighbours: of each operator.
    """
    component = front = members & -members
    while front:
        reached = 0
        for at in bits(front):
            reached |= neighbours[at]
        front = reached & members & ~component
        component |= front
    return component
