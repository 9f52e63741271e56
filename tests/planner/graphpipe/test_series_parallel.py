"""The decomposition beside all orders there are of a few operators."""

from collections.abc import Iterator
from functools import cache
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest

from headway.planner.graphpipe.sequencing import Sequencer
from headway.planner.graphpipe.series_parallel import Decomposition, Parallel, Part, Series, decompose, leaves

Pairs = frozenset[tuple[int, int]]


def random_edges(rng: np.random.Generator, size: int, share: float) -> list[tuple[int, int]]:
    return [pair for pair in combinations(range(size), 2) if rng.random() < share]


def closure(edges: list[tuple[int, int]] | Pairs, size: int) -> Pairs:
    reach = np.zeros((size, size), bool)
    for a, b in edges:
        reach[a, b] = True
    for via in range(size):
        reach |= reach[:, via : via + 1] & reach[via : via + 1, :]
    return frozenset((int(a), int(b)) for a, b in np.argwhere(reach))


def order_of(part: Part) -> Iterator[tuple[int, int]]:
    """All pairs that a tree orders."""
    if isinstance(part, int):
        return
    for each in part.parts:
        yield from order_of(each)
    if isinstance(part, Series):
        for i, first in enumerate(part.parts):
            for second in part.parts[i + 1 :]:
                yield from ((a, b) for a in leaves(first) for b in leaves(second))


def has_n(order: Pairs, size: int) -> bool:
    """Whether four operators are a < c, b < c, b < d and otherwise free."""
    return any(
        {pair for pair in permutations(four, 2) if pair in order} == {(a, c), (b, c), (b, d)}
        for four in permutations(range(size), 4)
        for a, b, c, d in [four]
    )


@cache
def series_parallel_orders(size: int) -> list[Pairs]:
    """All of them in which the operators' numbers rise."""
    pairs = list(combinations(range(size), 2))
    orders = set()
    for chosen in range(1 << len(pairs)):
        edges = frozenset(pair for i, pair in enumerate(pairs) if chosen >> i & 1)
        if closure(edges, size) == edges and not has_n(edges, size):
            orders.add(edges)
    return sorted(orders, key=sorted)


def loss_of(new: Pairs, seconds: list[float]) -> float:
    return sum(min(seconds[a], seconds[b]) for a, b in new)


def check_tree(part: Part) -> None:
    """No series in a series, no parallel in a parallel, and no part alone."""
    if isinstance(part, int):
        return
    assert len(part.parts) > 1
    for each in part.parts:
        assert not isinstance(each, type(part))
        check_tree(each)


def tree_is_right(found: Decomposition, edges: list[tuple[int, int]], size: int) -> None:
    check_tree(found.root)
    assert sorted(leaves(found.root)) == list(range(size))
    assert frozenset(order_of(found.root)) == closure([*edges, *found.added], size)


@pytest.mark.parametrize("seed", range(150))
def test_a_few_operators_lose_as_little_as_any_way(seed: int) -> None:
    """The best of all orders that keep the numbers rising; others renamed are tried by the operators' own symmetry."""
    rng = np.random.default_rng(seed)
    size = 5
    edges = random_edges(rng, size, rng.uniform(0.2, 0.7))
    seconds = rng.integers(1, 9, size).astype(float).tolist()
    order = closure(edges, size)
    found = decompose(seconds, edges)
    tree_is_right(found, edges, size)
    best = np.inf
    for names in permutations(range(size)):
        renamed = frozenset((names[a], names[b]) for a, b in order)
        if all(a < b for a, b in renamed):
            by_name = [seconds[names.index(i)] for i in range(size)]
            allowed = (each for each in series_parallel_orders(size) if renamed <= each)
            best = min(best, *(loss_of(each - renamed, by_name) for each in allowed))
    assert found.serialized_s == best
    assert (found.serialized_s == 0) == (not has_n(order, size)) == (not found.added)


@pytest.mark.parametrize("seed", range(60))
def test_larger_orders_keep_all_they_had(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(8, 40))
    edges = random_edges(rng, size, rng.uniform(0.02, 0.3))
    tree_is_right(decompose(rng.random(size).tolist(), edges), edges, size)


@pytest.mark.parametrize("seed", range(60))
def test_series_parallel_orders_stay_as_they_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = iter(range(10**6))

    def grow(depth: int) -> Part:
        if depth == 0 or rng.random() < 0.3:
            return next(numbers)
        kind = Series if rng.random() < 0.5 else Parallel
        return kind(tuple(grow(depth - 1) for _ in range(rng.integers(2, 4))))

    part = grow(4)
    size = len(leaves(part))
    pairs = sorted(order_of(part))
    found = decompose([1.0] * size, pairs)
    assert found.added == ()
    assert frozenset(order_of(found.root)) == frozenset(pairs)


def test_a_residual_connection_leaves_a_chain() -> None:
    assert decompose([1.0] * 4, [*pairwise(range(4)), (0, 3), (1, 3)]).root == Series((0, 1, 2, 3))


def test_tables_that_every_layer_reads_come_first() -> None:
    """As RoPE's in Llama: operator 1 is cheap, and the queries need it but not the values."""
    edges = [(0, 2), (2, 3), (3, 4), (1, 4), (2, 5), (4, 6), (5, 6)]
    found = decompose([5.0, 0.01, 5.0, 5.0, 5.0, 5.0, 5.0], edges)
    assert found.serialized_s == pytest.approx(0.02)


@pytest.mark.parametrize("seed", range(30))
def test_the_quick_way_is_a_cut_of_what_must_run_first(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = 12
    edges = random_edges(rng, size, 0.25)
    before = [0] * size
    for a, b in sorted(edges, key=lambda edge: edge[1]):
        before[b] |= before[a] | 1 << a
    members = (1 << size) - 1
    early = Sequencer([1.0] * size, [0] * size, before).cut(members)
    assert 0 < early < members
    assert all(before[at] & ~early == 0 for at in range(size) if early >> at & 1)
