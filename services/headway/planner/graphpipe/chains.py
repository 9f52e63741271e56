"""The series-parallel tree as the partitioner reads it: chains of parts that can be cut, and forks between them. Pure.

The operator before a fork may share a stage with the beginning of one branch, and the one behind it with the end of
one (section 5: both sides of a parallel decomposition have the same source and sink). So a branch is a chain with
these two operators at its ends. What is alike is there once: branches of a fork, and forks of a model.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product
from math import prod

import numpy as np
from numpy.typing import NDArray

from headway.planner.graphpipe.problem import Floats, Flow, PipelineProblem
from headway.planner.graphpipe.series_parallel import Parallel, Part, Series, leaves

_MOST_GROUPS = 512
_MOST_BRANCHES = 8  # of kinds of their own, where there are more groups


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """The work of runs of a chain, as sums from its beginning, or of single sets.

    Attributes:
        seconds: [positions, sizes]; forward and backward.
        held: [positions, 3]; bytes of state, of one saved sample, and of gradients.
        crossing: [positions, positions] of runs, or [sets]; bytes of one sample.
    """

    seconds: Floats
    held: Floats
    crossing: Floats

    @property
    def key(self) -> tuple[bytes, ...]:
        return self.seconds.tobytes(), self.held.tobytes(), self.crossing.tobytes()


@dataclass(frozen=True, slots=True)
class Block:
    """A fork at a place in a chain, with or without the operators around it.

    Attributes:
        start, length: of its elements in the chain, those around the fork included.
    """

    start: int
    length: int
    fork: "Fork"
    has_head: bool
    has_tail: bool


@dataclass(frozen=True, eq=False)
class Chain:
    """Elements one after another; a stage can be any run of them.

    Attributes:
        elements: of the tree.
        has_head, has_tail: whether the first or the last element is that around the fork that the chain is a branch of.
    """

    elements: tuple[Part, ...]
    loads: Loads
    blocks: tuple[Block, ...]
    has_head: bool = False
    has_tail: bool = False

    def operators(self, start: int, stop: int) -> list[int]:
        return [leaf for element in self.elements[start:stop] for leaf in leaves(element)]

    @cached_property
    def key(self) -> tuple[object, ...]:
        nested = tuple((b.start, b.length, id(b.fork), b.has_head, b.has_tail) for b in self.blocks)
        return (self.has_head, self.has_tail, nested, self.loads.key)


@dataclass(frozen=True, eq=False)
class Fork:
    """Branches side by side.

    Attributes:
        kinds: one branch of each kind.
        counts: branches of each kind.
        groups: [groups, kinds]; how many branches of each kind can be one stage together: two at least.
        alone, with_head, with_tail: loads of the groups, also with the operator before the fork or the one behind it.
        first, last: operators of each group, of the first branches of each kind or of the last ones.
        head, tail: these operators; None where what is there is no single operator.
    """

    kinds: tuple[Chain, ...]
    counts: tuple[int, ...]
    groups: NDArray[np.int64]
    alone: Loads
    with_head: Loads | None
    with_tail: Loads | None
    first: tuple[tuple[int, ...], ...]
    last: tuple[tuple[int, ...], ...]
    head: int | None
    tail: int | None

    @cached_property
    def key(self) -> tuple[object, ...]:
        all_loads = (self.alone, self.with_head, self.with_tail)
        loads = tuple(None if each is None else each.key for each in all_loads)
        return (tuple(id(kind) for kind in self.kinds), self.counts, loads)


@dataclass
class ChainBuilder:
    """Makes the chain of a tree.

    Attributes:
        branches: of each fork of the tree, by kinds.
        found: chains and forks, those first that others need.
        last: the elements of the last branch that is like a chain, by the chain's id.
    """

    problem: PipelineProblem
    branches: dict[Parallel, tuple[tuple[Part, ...], ...]] = field(default_factory=dict)
    found: dict[tuple[object, ...], Chain | Fork] = field(default_factory=dict)
    last: dict[int, tuple[Part, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem = self.problem
        self._seconds = problem.forward_s + problem.backward_s
        self._held = np.stack([problem.state_bytes, problem.saved_bytes, problem.gradient_bytes], axis=1)
        self._flows: list[list[int]] = [[] for _ in range(problem.num_operators)]
        for number, flow in enumerate(problem.flows):
            for at in {flow.producer, *flow.consumers}:
                self._flows[at].append(number)

    @property
    def order(self) -> list[Chain | Fork]:
        """All chains and forks, those first that others need."""
        return list(self.found.values())

    def root(self, tree: Part) -> Chain:
        return self._chain(tree.parts if isinstance(tree, Series) else (tree,))

    def _chain(self, elements: Sequence[Part], *, has_head: bool = False, has_tail: bool = False) -> Chain:
        chain = Chain(
            elements=tuple(elements),
            loads=self._run_loads(elements),
            blocks=tuple(self._blocks(elements)),
            has_head=has_head,
            has_tail=has_tail,
        )
        known = self.found.setdefault(chain.key, chain)
        assert isinstance(known, Chain), "keys of chains and forks differ"
        self.last.setdefault(id(known), known.elements)
        return known

    def _blocks(self, elements: Sequence[Part]) -> Iterator[Block]:
        for at, element in enumerate(elements):
            if not isinstance(element, Parallel):
                continue
            head = elements[at - 1] if at else None
            tail = elements[at + 1] if at + 1 < len(elements) else None
            has_head, has_tail = isinstance(head, int), isinstance(tail, int)
            fork = self._fork(element, head if isinstance(head, int) else None, tail if isinstance(tail, int) else None)
            for before, behind in product(range(has_head + 1), range(has_tail + 1)):
                yield Block(at - before, 1 + before + behind, fork, bool(before), bool(behind))

    def _fork(self, part: Parallel, head: int | None, tail: int | None) -> Fork:
        kinds = self._kinds(part, head, tail)
        if prod(len(alike) + 1 for _, alike in kinds) > _MOST_GROUPS:
            kinds = self._kinds(Parallel(tuple(_folded(part.parts))), head, tail)
        branches = tuple(tuple(alike) for _, alike in kinds)
        self.branches[part] = branches
        groups = np.array(list(_groups([len(each) for each in branches])), np.int64).reshape(-1, len(branches))
        sets = [_operators(branches, group) for group in groups.tolist()]
        last = [_operators([kind[::-1] for kind in branches], group) for group in groups.tolist()]
        loads = [self._set_loads([[*each, end] for each in sets]) for end in (head, tail) if end is not None]
        fork = Fork(
            kinds=tuple(chain for chain, _ in kinds),
            counts=tuple(map(len, branches)),
            groups=groups,
            alone=self._set_loads(sets),
            with_head=None if head is None else loads[0],
            with_tail=None if tail is None else loads[-1],
            first=tuple(sets),
            last=tuple(last),
            head=head,
            tail=tail,
        )
        known = self.found.setdefault(fork.key, fork)
        assert isinstance(known, Fork), "keys of chains and forks differ"
        return known

    def _kinds(self, part: Parallel, head: int | None, tail: int | None) -> list[tuple[Chain, list[Part]]]:
        """Branches that are alike, and touch the same tensors of those that several touch."""
        found: dict[tuple[object, ...], tuple[Chain, list[Part]]] = {}
        shared = self._shared(part)
        for branch in part.parts:
            inner = branch.parts if isinstance(branch, Series) else (branch,)
            ends = [[] if end is None else [end] for end in (head, tail)]
            chain = self._chain([*ends[0], *inner, *ends[1]], has_head=head is not None, has_tail=tail is not None)
            touched = tuple(number for number, others in enumerate(shared) if others & set(leaves(branch)))
            self.last[id(chain)] = (*ends[0], *inner, *ends[1])
            found.setdefault((id(chain), touched), (chain, []))[1].append(branch)
        return list(found.values())

    def _shared(self, part: Parallel) -> list[set[int]]:
        """Of each tensor that several branches touch the operators that do."""
        branch_of = {leaf: number for number, branch in enumerate(part.parts) for leaf in leaves(branch)}
        found = []
        for number in self._touching(branch_of):
            flow = self.problem.flows[number]
            touching = {at for at in (flow.producer, *flow.consumers) if at in branch_of}
            if len({branch_of[at] for at in touching}) > 1:
                found.append(touching)
        return found

    def _touching(self, operators: Iterable[int]) -> list[int]:
        """The tensors that some operators make or read."""
        return sorted({number for at in operators for number in self._flows[at]})

    def _run_loads(self, elements: Sequence[Part]) -> Loads:
        members = [leaves(element) for element in elements]
        position = {leaf: at for at, leafs in enumerate(members) for leaf in leafs}
        flows = [self.problem.flows[number] for number in self._touching(position)]
        return Loads(
            _sums(self._seconds, members), _sums(self._held, members), _crossing(flows, position, len(elements))
        )

    def _set_loads(self, sets: Sequence[Sequence[int]]) -> Loads:
        crossing = np.zeros(len(sets))
        for number, members in enumerate(map(frozenset, sets)):
            for flow in (self.problem.flows[at] for at in self._touching(members)):
                if not members.issuperset((flow.producer, *flow.consumers)):
                    crossing[number] += flow.bytes_per_sample
        return Loads(
            np.array([self._seconds[list(each)].sum(axis=0) for each in sets]).reshape(len(sets), -1),
            np.array([self._held[list(each)].sum(axis=0) for each in sets]).reshape(len(sets), 3),
            crossing,
        )


def _sums(values: Floats, members: Sequence[Sequence[int]]) -> Floats:
    """[elements + 1, columns]; sums over all elements before each."""
    return np.concatenate([np.zeros((1, values.shape[1])), np.cumsum([values[m].sum(axis=0) for m in members], axis=0)])


def _operators(branches: Sequence[Sequence[Part]], group: Sequence[int]) -> tuple[int, ...]:
    """Of so many branches of each kind."""
    chosen = [branch for kind, number in zip(branches, group, strict=True) for branch in kind[:number]]
    return tuple(sorted(leaf for branch in chosen for leaf in leaves(branch)))


def _groups(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """How many branches of each kind."""
    return (group for group in product(*(range(count + 1) for count in counts)) if sum(group) > 1)


def _folded(branches: Sequence[Part]) -> list[Part]:
    """Neighbouring branches as one, so that few are left."""
    size = -(-len(branches) // _MOST_BRANCHES)
    runs = [tuple(branches[start : start + size]) for start in range(0, len(branches), size)]
    return [run[0] if len(run) == 1 else Parallel(run) for run in runs]


def _crossing(flows: Sequence[Flow], position: Mapping[int, int], size: int) -> Floats:
    """[size + 1, size + 1]; bytes of one sample that the elements [start, stop) share with all others."""
    corner = np.zeros((size + 2, size + 2))
    for flow in flows:
        touched = [position.get(at) for at in (flow.producer, *flow.consumers)]
        inside = sorted({at for at in touched if at is not None})
        # A run touches the tensor where it holds one of its places; it does not cross where the run holds all.
        for last, at in pairwise([-1, *inside]):
            corner[last + 1, at + 1] += flow.bytes_per_sample
            corner[at + 1, at + 1] -= flow.bytes_per_sample
        if None not in touched:
            corner[0, inside[-1] + 1] -= flow.bytes_per_sample
            corner[inside[0] + 1, inside[-1] + 1] += flow.bytes_per_sample
    return np.ascontiguousarray(corner.cumsum(axis=0).cumsum(axis=1)[: size + 1, : size + 1])
