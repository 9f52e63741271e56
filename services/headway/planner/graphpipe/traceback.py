"""Finds the stages that the tables of a search count. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headway.planner.graphpipe.chains import Block
from headway.planner.graphpipe.kernel import Ints, devices_at
from headway.planner.graphpipe.pipeline import StageChoice
from headway.planner.graphpipe.series_parallel import Parallel, Part, Series, leaves
from headway.planner.graphpipe.tables import ChainTables, ForkTables, Tables, later

Branches = tuple[tuple[Part, ...], ...]


@dataclass(frozen=True, slots=True)
class _Branches:
    """Those branches of a fork at its place that are not stages yet, with the operators around it."""

    of: ForkTables
    branches: Branches
    before: tuple[Part, ...]
    behind: tuple[Part, ...]

    def without(self, size: Ints) -> "_Branches":
        left = tuple(kind[number:] for kind, number in zip(self.branches, size.tolist(), strict=True))
        return _Branches(self.of, left, self.before, self.behind)

    def taken(self, size: Ints) -> list[Part]:
        return [part for kind, number in zip(self.branches, size.tolist(), strict=True) for part in kind[:number]]

    def backwards(self) -> "_Branches":
        """The last branches first: what shares a stage with the operator behind the fork is next to it."""
        return _Branches(self.of, tuple(kind[::-1] for kind in self.branches), self.before, self.behind)

    @property
    def table(self) -> Ints:
        """[ends, begins]"""
        counts = np.array([len(kind) for kind in self.branches])
        found: Ints = self.of.subsets[int((counts * self.of.strides).sum())]
        return found

    def has(self, size: Ints) -> bool:
        return all(number <= len(kind) for kind, number in zip(self.branches, size.tolist(), strict=True))


@dataclass(slots=True)
class Traceback:
    """Goes through tables from the whole to its stages; each step finds what makes its value.

    Attributes:
        branches: of each fork of the tree, by the kinds of its tables.
    """

    tables: Tables
    branches: Mapping[Parallel, Branches]

    def stages(self, tree: Part, begin: int) -> list[StageChoice]:
        """The stages of the whole, whose first is at most at level `begin - 1`."""
        whole = self.tables.chains[id(self.tables.order[-1])]
        return list(self._chain(whole, whole.whole, _elements(tree), at=0, end=1, begin=begin))

    def _chain(
        self, of: ChainTables, table: Ints, elements: Sequence[Part], *, at: int, end: int, begin: int
    ) -> Iterator[StageChoice]:
        """The elements from `at` to the end of a table."""
        while at < table.shape[1] - 1:
            wanted = int(table[end, at, begin])
            begin = int(np.argmax(table[end, at] == wanted))
            stop = self._stop(of, table, at=at, end=end, level=begin - 1, wanted=wanted)
            if stop is not None:
                yield _stage(elements[at:stop], devices_at(of.levels[at, stop], begin - 1))
                at, begin = stop, begin - 1
                continue
            block, between = self._next_block(of, table, at=at, end=end, begin=begin, wanted=wanted)
            fork = self._at_place(block, elements)
            if block.has_head:
                exact = fork.of.exact[block.has_tail][between]
                level = int(np.argmax(exact == fork.of.blocks[True, block.has_tail][between, begin]))
                yield from self._headed(fork, has_tail=block.has_tail, end=between, level=level)
            elif block.has_tail:
                yield from self._tailed(fork, end=between, begin=begin)
            else:
                yield from self._subset(fork, end=between, begin=begin)
            at, begin = at + block.length, between

    def _stop(self, of: ChainTables, table: Ints, *, at: int, end: int, level: int, wanted: int) -> int | None:
        """Where a stage that begins here ends, if one does."""
        for stop in range(at + 1, table.shape[1]):
            if devices_at(of.levels[at, stop], level) + table[end, stop, level] == wanted:
                return stop
        return None

    def _next_block(
        self, of: ChainTables, table: Ints, *, at: int, end: int, begin: int, wanted: int
    ) -> tuple[Block, int]:
        for block in of.chain.blocks:
            if block.start == at and at + block.length < table.shape[1]:
                inner = self.tables.forks[id(block.fork)].blocks[block.has_head, block.has_tail]
                sums = inner[:, begin] + table[end, at + block.length]
                if sums.min() == wanted:
                    return block, int(np.argmin(sums))
        raise AssertionError("a table counts devices that no stage and no block has")

    def _at_place(self, block: Block, elements: Sequence[Part]) -> _Branches:
        part = elements[block.start + block.has_head]
        assert isinstance(part, Parallel), "a block is around a fork"
        end = block.start + block.length
        tables = self.tables.forks[id(block.fork)]
        before = tuple(elements[block.start : block.start + 1]) if block.has_head else self._padding(tables.fork.head)
        behind = tuple(elements[end - 1 : end]) if block.has_tail else self._padding(tables.fork.tail)
        return _Branches(tables, self.branches[part], before, behind)

    @staticmethod
    def _padding(operator: int | None) -> tuple[Part, ...]:
        """Chains of branches have a place for the operator around them, taken or not."""
        return () if operator is None else (operator,)

    def _headed(self, fork: _Branches, *, has_tail: bool, end: int, level: int) -> Iterator[StageChoice]:
        """A fork with the operator before it, whose stage is at just this level."""
        of, wanted = fork.of, fork.of.exact[has_tail][end, level]
        if has_tail:
            yield from self._joined(fork, end=end, level=level, wanted=int(wanted))
            return
        for choice, size in enumerate(of.sizes):
            left = fork.without(size)
            if of.heads[choice, end, level] + left.table[end, level] == wanted:
                yield from self._head(fork, choice, end=end, level=level)
                yield from self._subset(left, end=end, begin=level)
                return

    def _joined(self, fork: _Branches, *, end: int, level: int, wanted: int) -> Iterator[StageChoice]:
        """With the operators before and behind it."""
        of = fork.of
        for number, kind in enumerate(of.fork.kinds):
            tables, left = self.tables.chains[id(kind)], fork.without(of.sizes[number])
            if tables.cut_heads[end, level] + left.table[end + 1, level] == wanted:
                elements = self._branch(fork, number)
                yield from self._first(tables, tables.whole, elements, end=end, level=level, is_cut=True)
                yield from self._subset(left, end=end + 1, begin=level)
                return
        for before, size in enumerate(of.sizes):
            rest = fork.without(size)
            for behind, other in enumerate(of.sizes):
                if not rest.has(other):
                    continue
                left = rest.backwards().without(other).backwards()
                devices = of.heads[before, end + 1, level] + of.tails[behind, end, level] + left.table[end + 1, level]
                if devices == wanted:
                    yield from self._head(fork, before, end=end + 1, level=level)
                    yield from self._tail(rest, behind, end=end, begin=level)
                    yield from self._subset(left, end=end + 1, begin=level)
                    return

    def _tailed(self, fork: _Branches, *, end: int, begin: int) -> Iterator[StageChoice]:
        """A fork with the operator behind it."""
        wanted = fork.of.blocks[False, True][end, begin]
        for choice, size in enumerate(fork.of.sizes):
            left = fork.backwards().without(size).backwards()
            if fork.of.tails[choice, end, begin] + later(left.table)[end, begin] == wanted:
                yield from self._tail(fork, choice, end=end, begin=begin)
                yield from self._subset(left, end=end + 1, begin=begin)
                return

    def _head(self, fork: _Branches, choice: int, *, end: int, level: int) -> Iterator[StageChoice]:
        """The operator before a fork, with a branch or a group."""
        of, num_kinds = fork.of, len(fork.of.fork.kinds)
        if choice >= num_kinds:
            devices = devices_at(of.with_head[choice - num_kinds], level)
            yield _stage([*fork.before, *fork.taken(of.sizes[choice])], devices)
            return
        kind = self.tables.chains[id(of.fork.kinds[choice])]
        yield from self._first(kind, kind.inner, self._branch(fork, choice), end=end, level=level, is_cut=False)

    def _first(
        self, of: ChainTables, table: Ints, elements: Sequence[Part], *, end: int, level: int, is_cut: bool
    ) -> Iterator[StageChoice]:
        """A whole chain whose first stage is at just this level."""
        last = table.shape[1] - 1
        wanted = (of.cut_heads if is_cut else of.heads)[end, level]
        for stop in range(1, last if is_cut else last + 1):
            devices = devices_at(of.levels[0, stop], level)
            if devices + table[end, stop, level] == wanted:
                yield _stage(elements[:stop], devices)
                yield from self._chain(of, table, elements, at=stop, end=end, begin=level)
                return
        for block in of.chain.blocks:
            if block.start != 0 or block.length > last:
                continue
            sums = self.tables.forks[id(block.fork)].exact[block.has_tail][:, level] + table[end, block.length]
            if sums.min() == wanted:
                between = int(np.argmin(sums))
                yield from self._headed(
                    self._at_place(block, elements), has_tail=block.has_tail, end=between, level=level
                )
                yield from self._chain(of, table, elements, at=block.length, end=end, begin=between)
                return

    def _tail(self, fork: _Branches, choice: int, *, end: int, begin: int) -> Iterator[StageChoice]:
        """A branch or a group with the operator behind the fork."""
        fork = fork.backwards()
        of, num_kinds = fork.of, len(fork.of.fork.kinds)
        if choice >= num_kinds:
            yield _stage(
                [*fork.taken(of.sizes[choice]), *fork.behind], devices_at(of.with_tail[choice - num_kinds], end)
            )
            return
        kind = self.tables.chains[id(of.fork.kinds[choice])]
        start = int(kind.chain.has_head)
        yield from self._chain(kind, kind.whole, self._branch(fork, choice), at=start, end=end, begin=begin)

    def _subset(self, fork: _Branches, *, end: int, begin: int) -> Iterator[StageChoice]:
        """Branches without the operators around the fork."""
        of, num_kinds = fork.of, len(fork.of.fork.kinds)
        while any(fork.branches):
            wanted = fork.table[end, begin]
            first = next(number for number, kind in enumerate(fork.branches) if kind)
            for choice, size in enumerate(of.sizes):
                if size[first] == 0 or not fork.has(size):
                    continue
                left = fork.without(size)
                if choice < num_kinds:
                    kind = self.tables.chains[id(of.fork.kinds[choice])]
                    if kind.branch[end, begin] + left.table[end, begin] == wanted:
                        elements, start = self._branch(fork, choice), int(kind.chain.has_head)
                        yield from self._chain(kind, kind.inner, elements, at=start, end=end, begin=begin)
                        break
                elif begin > end:
                    devices = devices_at(of.alone[choice - num_kinds], end)
                    if devices + left.table[end, begin] == wanted:
                        yield _stage(fork.taken(size), devices)
                        break
            fork = left

    @staticmethod
    def _branch(fork: _Branches, kind: int) -> list[Part]:
        """The elements of a kind's first branch that is left, as its chain has them."""
        return [*fork.before, *_elements(fork.branches[kind][0]), *fork.behind]


def _elements(part: Part) -> tuple[Part, ...]:
    return part.parts if isinstance(part, Series) else (part,)


def _stage(parts: Sequence[Part], num_devices: int) -> StageChoice:
    return StageChoice(tuple(sorted(leaf for part in parts for leaf in leaves(part))), num_devices)
