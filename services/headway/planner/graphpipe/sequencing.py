"""Where to put operators that are neither in series nor parallel one after another, at the least loss. Pure."""

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from headway.planner.graphpipe.operator_sets import bits, component_of

_EXACT = 10  # operators up to which all ways are tried


class Sequencer:
    """Cuts parts of one order in two. The loss of a cut is the sum, over pairs that it orders anew, of the shorter
    one's seconds."""

    def __init__(self, seconds: Sequence[float], neighbours: Sequence[int], before: Sequence[int]) -> None:
        self._seconds = seconds
        self._neighbours = neighbours
        self._before = before

    def cut(self, members: int) -> int:
        """The operators that shall run before all others of a part, with everything that they need.

        Of up to ten operators this is a cut that leads to the least loss in the end; of more the one with the least
        loss of its own, out of those that one operator, or the operators' order, suggests.
        """
        if members.bit_count() <= _EXACT:
            return self._exact(members)
        return self._greedy(members)

    def _greedy(self, members: int) -> int:
        at = list(bits(members))
        is_before = np.array([[self._before[b] >> a & 1 for b in at] for a in at], bool)
        seconds = np.array([self._seconds[a] for a in at])
        is_free = ~(is_before | is_before.T | np.eye(len(at), dtype=bool))
        loss = np.where(is_free, np.minimum(seconds[:, None], seconds[None, :]), 0.0)
        early = _candidates(is_before)
        losses = ((early @ loss) * (1 - early)).sum(axis=1)
        # Of equal losses the even cut, so that parts shrink fast.
        best = np.lexsort((np.abs(early.sum(axis=1) - len(at) / 2), losses))[0]
        return sum(1 << a for a, is_early in zip(at, early[best], strict=True) if is_early)

    def _exact(self, members: int) -> int:
        neighbours, before, seconds = self._neighbours, self._before, self._seconds

        @cache
        def least(part: int) -> tuple[float, int]:
            """The least loss of a part, and the first set of its sequence if it needs a new one."""
            if part & (part - 1) == 0:
                return 0.0, part
            component = component_of(part, neighbours)
            if component != part:
                return least(component)[0] + least(part & ~component)[0], part
            best = (np.inf, part)
            for early in _ideals(part, before):
                late = part & ~early
                own = sum(min(seconds[a], seconds[b]) for b in bits(late) for a in bits(early & ~before[b]))
                if own < best[0]:
                    best = min(best, (own + least(early)[0] + least(late)[0], early))
            return best

        return least(members)[1]


def _candidates(is_before: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[cuts, operators]; whether each operator is in the first part. None is empty or everything."""
    size = len(is_before)
    with_it = is_before | np.eye(size, dtype=bool)
    in_order = np.tril(np.ones((size, size), bool))
    found = np.concatenate([is_before.T, with_it.T, ~with_it, ~is_before, in_order])
    counts = found.sum(axis=1)
    return np.unique(found[(counts > 0) & (counts < size)], axis=0).astype(np.float64)


def _ideals(members: int, before: Sequence[int]) -> Iterator[int]:
    """Subsets that hold all that their operators need, but for none and all."""
    order = list(bits(members))

    def extend(position: int, chosen: int) -> Iterator[int]:
        if position == len(order):
            yield chosen
            return
        at = order[position]
        if before[at] & members & ~chosen == 0:
            yield from extend(position + 1, chosen | 1 << at)
        yield from extend(position + 1, chosen)

    return (ideal for ideal in extend(0, 0) if ideal not in (0, members))
