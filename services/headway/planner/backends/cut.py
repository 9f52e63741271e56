"""Mixed precision: how much of a program may be computed less precisely.

What a backend of less precision computes of a program adds to the error about in proportion. So a backend that is wrong
by somewhat more than is allowed may still run a part, and bisection finds how long that part can be: everything before
a cut, or everything after it.
"""

from collections.abc import Mapping

_STEPS = 5
"""Cuts that are tried: the last one is within a 32nd of the program of the best."""


def next_cut(length: int, is_within: Mapping[int, bool]) -> int | None:
    """How many of a program's instructions to try next; None where enough was tried.

    Args:
        length: instructions of the program. All of them are known to be too many, and none of them to be allowed.
        is_within: whether the error was within the limit, by number of instructions that were tried.
    """
    low, high = 0, length
    for _ in range(_STEPS):
        middle = (low + high) // 2
        if middle == low:
            return None
        if middle not in is_within:
            return middle
        low, high = (middle, high) if is_within[middle] else (low, middle)
    return None
