"""Series-parallel decomposition of the order in which operators can run (GraphPipe, section 5). Pure.

What counts is the order, not its edges: an edge beside a longer way adds nothing, so a residual connection leaves a
chain a chain. An order is series-parallel if it has no four operators a < c, b < c, b < d and no other relation among
them. Any other is made so by ordering more: no operator is added, only some that could have run at the same time no
longer can. Sets of operators are bits of an int, in the operators' own order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headway.planner.graphpipe.operator_sets import bits, component_of
from headway.planner.graphpipe.sequencing import Sequencer


@dataclass(frozen=True, slots=True)
class Series:
    """Parts of which each runs after all of the one before it. No part is a series itself."""

    parts: "tuple[Part, ...]"


@dataclass(frozen=True, slots=True)
class Parallel:
    """Parts that have nothing to do with each other. No part is parallel itself."""

    parts: "tuple[Part, ...]"


Part = int | Series | Parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposition:
    """Attributes:
    root: of the tree; its leaves are operators.
    added: pairs (before, after) that the order did not have; those that follow from others are left out.
    serialized_s: seconds of work that could have run beside other work, and no longer can: for each pair of operators
        that is ordered anew, the shorter one's.
    """

    root: Part
    added: tuple[tuple[int, int], ...] = ()
    serialized_s: float = 0.0


def decompose(seconds: Sequence[float], edges: Iterable[tuple[int, int]]) -> Decomposition:
    """Decomposes an order of operators, and makes it series-parallel where it is not.

    Args:
        seconds: of each operator; they are numbered in an order in which they can run.
        edges: (before, after).
    """
    neighbours, before = [0] * len(seconds), [0] * len(seconds)
    for first, second in sorted(edges, key=lambda edge: edge[1]):
        neighbours[first] |= 1 << second
        neighbours[second] |= 1 << first
        before[second] |= before[first] | 1 << first
    return _Decomposing(seconds, neighbours, before).run()


def leaves(part: Part) -> list[int]:
    """The operators of a part, in an order in which they can run."""
    if isinstance(part, int):
        return [part]
    return [leaf for each in part.parts for leaf in leaves(each)]


@dataclass(slots=True)
class _Decomposing:
    """Attributes:
    neighbours: of each operator those that it has an edge with.
    before: of each operator all that run before it; grows where pairs are added.
    """

    seconds: Sequence[float]
    neighbours: list[int]
    before: list[int]
    added: list[tuple[int, int]] = field(default_factory=list)
    serialized_s: float = 0.0

    def run(self) -> Decomposition:
        root = self.part((1 << len(self.seconds)) - 1)
        return Decomposition(root=root, added=tuple(self.added), serialized_s=self.serialized_s)

    def part(self, members: int) -> Part:
        """The tree of some operators that all others see alike."""
        components = self.components(members)
        if len(components) > 1:
            return Parallel(tuple(self.part(each) for each in components))
        runs = self.runs(members)
        if len(runs) == 1 and members.bit_count() > 1:
            runs = self.sequence(members)
        if len(runs) == 1:
            return members.bit_length() - 1
        flat: list[Part] = []
        for each in runs:
            found = self.part(each)
            flat.extend(found.parts if isinstance(found, Series) else [found])
        return Series(tuple(flat))

    def components(self, members: int) -> list[int]:
        """The parts that no edge connects, by their first operators."""
        found = []
        while members:
            found.append(component_of(members, self.neighbours))
            members &= ~found[-1]
        return found

    def runs(self, members: int) -> list[int]:
        """The longest sequence of parts such that each operator of one runs before all of the next."""
        cuts, least = [], len(self.before)
        for at in reversed(list(bits(members))):
            missing = members & ~self.before[at]
            least = min(least, (missing & -missing).bit_length() - 1)
            if least == at:
                cuts.append(at)
        cuts.reverse()
        cuts.append(len(self.before))
        between = ((1 << stop) - (1 << start) for start, stop in pairwise(cuts))
        return [members & mask for mask in between]

    def sequence(self, members: int) -> list[int]:
        """Orders a part that is neither series nor parallel: all of one part before all of the other."""
        early = Sequencer(self.seconds, self.neighbours, self.before).cut(members)
        late = members & ~early
        for at in bits(late):
            for other in bits(early & ~self.before[at]):
                self.serialized_s += min(self.seconds[at], self.seconds[other])
        last, first = self._ends(early, late)
        self.added.extend((a, b) for a in bits(last) for b in bits(first) if not self.before[b] >> a & 1)
        for at in bits(late):
            self.before[at] |= early
        return [early, late]

    def _ends(self, early: int, late: int) -> tuple[int, int]:
        """The operators of the early part that none of it follows, and those of the late one that none precedes."""
        inner = 0
        for at in bits(early):
            inner |= self.before[at]
        return early & ~inner, sum(1 << at for at in bits(late) if not self.before[at] & late)
