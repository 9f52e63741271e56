"""Values that devices have parts of: what a view of a part is, and which moves bring parts from one way to lie to
another."""

import random
from math import prod

import pytest
import torch

from headway.core.execution.tiles import MoveKind, is_possible, local_shape, moves, viewed
from headway.core.sharding_spec import Shard, ShardingSpec

MESH = (2, 3)
VIEWS = {
    "view": [([24, 6, 12], [[4, 36, 12]]), ([24, 6, 12], [[24, 72]]), ([24, 6, 12], [[12, 2, 6, 3, 4]])],
    "transpose": [([24, 6, 12], [0, 2])],
    "permute": [([24, 6, 12], [[2, 0, 1]])],
    "t": [([24, 36], [])],
    "expand": [([1, 6, 12], [[4, 6, 12]]), ([6, 12], [[5, 6, 12]])],
    "slice": [([6, 36], [1, 12, 24]), ([6, 36], [1, -12, 100]), ([36, 6], [0, 0, 18])],
    "split": [([6, 36], [12, 1]), ([36, 6], [18])],
    "unsqueeze": [([6, 12], [1])],
    "select": [([6, 12, 24], [1, 3])],
}


def specs(shape: list[int]) -> list[ShardingSpec]:
    """All ways in which a value can lie, with some cuts inside of dims."""
    shards = [None, *(Shard(dim, outer) for dim in range(len(shape)) for outer in (1, 2, 3, 4, 6))]
    every = (ShardingSpec((first, second)) for first in shards for second in shards)
    return [spec for spec in every if is_possible(shape, spec, MESH)]


def coordinates() -> list[tuple[int, int]]:
    return [(row, column) for row in range(MESH[0]) for column in range(MESH[1])]


def part(whole: torch.Tensor, spec: ShardingSpec, at: tuple[int, ...]) -> torch.Tensor:
    """What a device has: of each cut, from the outermost on, its part of every outer part."""
    index = [torch.arange(size) for size in whole.shape]
    for axis, shard in sorted(enumerate(spec.axes), key=lambda each: each[1].outer if each[1] else 0):
        if shard is not None:
            inside = [s for s, other in zip(MESH, spec.axes, strict=True) if other and other.dim == shard.dim]
            others = [o.outer for o in spec.axes if o and o.dim == shard.dim and o.outer < shard.outer]
            outer = shard.outer // (prod(inside) // MESH[axis] if others else 1)
            index[shard.dim] = index[shard.dim].view(outer, MESH[axis], -1)[:, at[axis]].flatten()
    for dim, chosen in enumerate(index):
        whole = whole.index_select(dim, chosen)
    return whole


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_a_part_is_the_part_of_the_view(name: str) -> None:
    followed = 0
    for shape, arguments in VIEWS[name]:
        whole = torch.arange(prod(shape)).view(shape)
        result = getattr(whole, name)(*arguments) if name != "slice" else whole.narrow(*_narrow(arguments, shape))
        results = result if isinstance(result, tuple) else (result,)
        for spec in specs(shape):
            view = viewed(name, arguments, shape, [list(each.shape) for each in results], spec, MESH)
            followed += view.source == spec and not spec.is_replicated
            call = torch.ops.aten.reshape if name in ("view", "unsqueeze") else getattr(torch.ops.aten, name)
            for at in coordinates():
                made = call(part(whole, view.source, at), *view.arguments)
                for own, each, lies in zip(made if len(results) > 1 else [made], results, view.results, strict=True):
                    assert torch.equal(own, part(each, lies, at)), (shape, arguments, spec)
    assert followed > 0


def test_moves_bring_parts_from_one_way_to_lie_to_another() -> None:
    chosen = random.Random(0)
    shape = [24, 36]
    whole = torch.arange(prod(shape)).view(shape)
    kinds: set[MoveKind] = set()
    for _ in range(300):
        source, target = chosen.choice(specs(shape)), chosen.choice(specs(shape))
        has = {at: part(whole, source, at) for at in coordinates()}
        for move in moves(source, target, MESH):
            rows = {at: [(*at[: move.axis], i, *at[move.axis + 1 :]) for i in range(MESH[move.axis])] for at in has}
            kinds.add(move.kind)
            if move.kind is not MoveKind.GATHER:
                dim, outer = (move.dim, move.outer) if move.kind is MoveKind.SLICE else (move.to_dim, move.to_outer)
                halves = {at: each.unflatten(dim, (outer, MESH[move.axis], -1)) for at, each in has.items()}
                pieces = {
                    (at, i): part.flatten(dim, dim + 1)
                    for at, each in halves.items()
                    for i, part in enumerate(each.unbind(dim + 1))
                }
            else:
                pieces = {(at, i): each for at, each in has.items() for i in range(MESH[move.axis])}
            if move.kind is MoveKind.SLICE:
                has = {at: pieces[at, at[move.axis]] for at in has}
                continue
            given = {at: [pieces[other, at[move.axis]] for other in row] for at, row in rows.items()}
            cut = {at: [part.unflatten(move.dim, (move.outer, -1)) for part in parts] for at, parts in given.items()}
            has = {at: torch.cat(parts, move.dim + 1).flatten(move.dim, move.dim + 1) for at, parts in cut.items()}
        for at, each in has.items():
            assert each.shape == local_shape(shape, target, MESH)
            assert torch.equal(each, part(whole, target, at)), (source, target)
    assert kinds == {MoveKind.GATHER, MoveKind.EXCHANGE, MoveKind.SLICE}


def _narrow(arguments: list[int], shape: list[int]) -> tuple[int, int, int]:
    dim, start, end = arguments
    first = start % shape[dim]
    return dim, first, min(end, shape[dim]) - first
