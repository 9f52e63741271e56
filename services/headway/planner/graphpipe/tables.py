"""The tables of one search for stages under a bound: of all chains and forks of a model. Pure."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from headway.planner.graphpipe.chains import Block, Chain, Fork
from headway.planner.graphpipe.kernel import (
    NONE,
    Ints,
    chain_table,
    group_heads,
    group_tails,
    head_table,
    joined,
    subset_tables,
)

_NO_BLOCKS = np.zeros(0, np.int32)


class StageLevels(Protocol):
    """The highest levels at which stages keep to a bound, for 1, 2, 4, ... devices.

    Attributes:
        top: the most stages that a sample can go through.
        num_powers: numbers of devices.
    """

    @property
    def top(self) -> int: ...

    @property
    def num_powers(self) -> int: ...

    def of_chain(self, chain: Chain) -> tuple[Ints, Ints]:
        """[starts, stops, powers] levels of all runs, and [starts, stops] the stops that are possible with 0 behind."""

    def of_fork(self, fork: Fork) -> tuple[Ints, Ints, Ints]:
        """[groups, powers] levels of groups alone, with the operator before the fork and with the one behind it."""


@dataclass(slots=True)
class ChainTables:
    """Attributes:
    levels, stops: of runs; see `run_levels`.
    inner, whole: [ends, positions, begins]; without and with the operator behind the fork, if it has that.
    heads: [ends, levels]; of `inner`, by the level of the first stage.
    cut_heads: the same of `whole`, where the first and the last element are in two stages.
    """

    chain: Chain
    levels: Ints
    stops: Ints
    inner: Ints
    whole: Ints
    heads: Ints
    cut_heads: Ints

    @property
    def branch(self) -> Ints:
        """[ends, begins]; without the operators around the fork."""
        return self.inner[:, int(self.chain.has_head)]

    @property
    def tail(self) -> Ints:
        """[ends, begins]; with the operator behind the fork."""
        return self.whole[:, int(self.chain.has_head)]


@dataclass(slots=True)
class ForkTables:
    """Attributes:
    alone, with_head, with_tail: [groups, powers]; the highest levels of groups.
    subsets: [subsets, ends, begins]; see `subset_tables`.
    heads, tails: [choices, ends, ...]; first of the kinds, then of the groups.
    blocks: [ends, begins]; by whether the operators before and behind the fork are with it.
    exact: [ends, levels]; by whether the one behind it is with it, by the level of the stage of the one before it.
    """

    fork: Fork
    sizes: Ints
    digits: Ints
    strides: Ints
    alone: Ints
    with_head: Ints
    with_tail: Ints
    subsets: Ints
    heads: Ints
    tails: Ints
    blocks: dict[tuple[bool, bool], Ints] = field(default_factory=dict)
    exact: dict[bool, Ints] = field(default_factory=dict)

    @property
    def full(self) -> int:
        return len(self.digits) - 1

    def number(self, choice: int) -> int:
        """By how much a choice lowers the number of a subset."""
        return int((self.sizes[choice] * self.strides).sum())


@dataclass(slots=True)
class Tables:
    """Attributes:
    order: all chains and forks of a model, those first that others need; the last is the whole.
    """

    order: list[Chain | Fork]
    bounds: StageLevels
    chains: dict[int, ChainTables] = field(default_factory=dict)
    forks: dict[int, ForkTables] = field(default_factory=dict)

    def fill(self) -> ChainTables:
        """Fills all tables; returns those of the whole."""
        for part in self.order:
            if isinstance(part, Chain):
                self.chains[id(part)] = self._of_chain(part, num_ends=1 if part is self.order[-1] else None)
            else:
                self.forks[id(part)] = self._of_fork(part)
        return self.chains[id(self.order[-1])]

    def _of_chain(self, chain: Chain, *, num_ends: int | None) -> ChainTables:
        top, length = self.bounds.top, len(chain.elements)
        levels, stops = self.bounds.of_chain(chain)
        starts, lengths, blocks = self._blocks(chain.blocks, [self._block(block) for block in chain.blocks])
        ends = top + 1 if num_ends is None else num_ends
        whole = chain_table(levels, stops, starts, lengths, blocks, length, top, ends)
        inner, heads, cut_heads = whole, whole[:, 0], whole[:, 0]
        if chain.has_tail:
            inner = chain_table(levels, stops, starts, lengths, blocks, length - 1, top, ends)
        if chain.has_head:
            first = [block for block in chain.blocks if block.start == 0]
            exact = [self.forks[id(block.fork)].exact[block.has_tail] for block in first]
            begun = self._blocks(first, exact)
            heads = head_table(levels, stops, *begun, inner, is_cut=False)
            cut_heads = head_table(levels, stops, *begun, whole, is_cut=True)
        return ChainTables(chain, levels, stops, inner, whole, heads, cut_heads)

    def _block(self, block: Block) -> Ints:
        return self.forks[id(block.fork)].blocks[block.has_head, block.has_tail]

    def _blocks(self, blocks: tuple[Block, ...] | list[Block], tables: list[Ints]) -> tuple[Ints, Ints, Ints]:
        side = self.bounds.top + 2
        if not blocks:
            return _NO_BLOCKS, _NO_BLOCKS, np.zeros((0, side, side), np.int32)
        starts = np.array([block.start for block in blocks], np.int32)
        return starts, np.array([block.length for block in blocks], np.int32), np.stack(tables)

    def _of_fork(self, fork: Fork) -> ForkTables:
        counts = np.array(fork.counts)
        strides = np.concatenate([[1], np.cumprod(counts[:-1] + 1)]).astype(np.int32)
        digits = (np.arange(np.prod(counts + 1))[:, None] // strides % (counts + 1)).astype(np.int32)
        groups = fork.groups.astype(np.int32)
        kinds = [self.chains[id(kind)] for kind in fork.kinds]
        levels, top = self.bounds.of_fork(fork), self.bounds.top
        branches = np.stack([kind.branch for kind in kinds])
        tables = ForkTables(
            fork=fork,
            sizes=np.concatenate([np.eye(len(kinds), dtype=np.int32), groups]),
            digits=digits,
            strides=strides,
            alone=levels[0],
            with_head=levels[1],
            with_tail=levels[2],
            subsets=subset_tables(branches, levels[0], groups, digits, strides),
            heads=np.concatenate([[kind.heads for kind in kinds], group_heads(levels[1], top)]),
            tails=np.concatenate([[kind.tail for kind in kinds], group_tails(levels[2], top)]),
        )
        self._join(tables, kinds)
        return tables

    def _join(self, tables: ForkTables, kinds: list[ChainTables]) -> None:
        fork, subsets, full = tables.fork, tables.subsets, tables.full
        tables.blocks[False, False] = subsets[full]
        rests = [subsets[full - tables.number(choice)] for choice in range(len(tables.sizes))]
        if fork.head is not None:
            sums = [head + rest for head, rest in zip(tables.heads, rests, strict=True)]
            tables.exact[False] = np.minimum(np.min(sums, axis=0), NONE)
        if fork.tail is not None:
            sums = [tail + later(rest) for tail, rest in zip(tables.tails, rests, strict=True)]
            tables.blocks[False, True] = np.minimum(np.min(sums, axis=0), NONE)
        if fork.head is not None and fork.tail is not None:
            tables.exact[True] = joined(
                tables.heads,
                tables.tails,
                np.stack([kind.cut_heads for kind in kinds]),
                tables.sizes,
                subsets,
                tables.digits,
                tables.strides,
            )
        for has_tail, exact in tables.exact.items():
            tables.blocks[True, has_tail] = up_to(exact)


def later(table: Ints) -> Ints:
    """[ends, ...]; with stages behind that are one level higher."""
    return np.concatenate([table[1:], np.full_like(table[:1], NONE)])


def up_to(exact: Ints) -> Ints:
    """[ends, begins] out of [ends, levels]: what is before a stage is one level higher."""
    return np.minimum.accumulate(np.concatenate([np.full_like(exact[:, :1], NONE), exact[:, :-1]], axis=1), axis=1)
