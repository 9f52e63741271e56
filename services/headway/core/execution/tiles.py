"""How values are cut over a mesh, how cuts go through views, and what moves between two ways to lie. Pure.

A cut is a digit of an element's place in its dim: `outer * parts * inner` elements are cut along the middle one. Views
that keep the order of elements move digits between dims; transpositions take dims with them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from math import prod

from headway.core.sharding_spec import Shard, ShardingSpec


class MoveKind(StrEnum):
    """What the devices along an axis do with a value; also the names of a local program's instructions."""

    GATHER = "headway.gather"
    """Each gets all of a dim of which each has a part."""
    EXCHANGE = "headway.exchange"
    """Each gives all others their parts of one dim, and gets all of another of which each has a part."""
    SLICE = "headway.slice"
    """Each keeps its part of a dim."""
    SUM = "headway.sum"
    """Each gets the sum of all devices' values."""
    MAX = "headway.max"
    """Each gets the greatest of all devices' elements."""
    SCATTER = "headway.scatter"
    """Each gets its part of the sum."""
    FIRST = "headway.first"
    """The first device keeps its value, and all others have zeros: a sum then has it once."""
    SPREAD = "headway.spread"
    """A part as a whole dim with zeros beside it: a sum then has all parts."""


@dataclass(frozen=True, slots=True)
class Move:
    """Attributes:
    dim, outer: of the value as each device has it before the move; 0 and 1 where no dim is meant.
    to_dim, to_outer: of an exchange, where it cuts.
    """

    kind: MoveKind
    axis: int
    dim: int = 0
    outer: int = 1
    to_dim: int = 0
    to_outer: int = 1


def local_shape(shape: Sequence[int], spec: ShardingSpec, mesh: Sequence[int]) -> tuple[int, ...]:
    """What each device has of a value."""
    found = list(shape)
    for size, shard in zip(mesh, spec.axes, strict=True):
        if shard is not None:
            found[shard.dim] //= size
    return tuple(found)


def local_outer(axes: Sequence[Shard | None], axis: int, mesh: Sequence[int]) -> int:
    """The parts that the cut dim consists of on each device: those outside of the cut, of which others cut some."""
    own = axes[axis]
    assert own is not None
    outer = own.outer
    for size, other in zip(mesh, axes, strict=True):
        if other is not None and other.dim == own.dim and other.outer < own.outer:
            outer //= size
    return outer


def moves(source: ShardingSpec, target: ShardingSpec, mesh: Sequence[int]) -> list[Move]:
    """What brings a value from one way to lie to another: inner cuts are gathered before outer ones, and made after
    them. What is gathered from one dim and at once cut along another is exchanged."""
    found = list(_gathers_and_slices(source, target, mesh))
    for at, (last, first) in enumerate(pairwise(found)):
        is_turn = (last.kind, first.kind) == (MoveKind.GATHER, MoveKind.SLICE)
        if is_turn and last.axis == first.axis and last.dim != first.dim:
            made = replace(last, kind=MoveKind.EXCHANGE, to_dim=first.dim, to_outer=first.outer)
            return [*found[:at], made, *found[at + 2 :]]
    return found


def _gathers_and_slices(source: ShardingSpec, target: ShardingSpec, mesh: Sequence[int]) -> Iterator[Move]:
    axes = list(source.axes)
    pairs = list(enumerate(zip(source.axes, target.axes, strict=True)))
    gathered = {axis for axis, (has, wants) in pairs if has is not None and has != wants}
    while True:
        changed = {axis: {has, wants} for axis, (has, wants) in pairs if has != wants or axis in gathered}
        inner = {
            later
            for axis, shards in changed.items()
            for later, (has, _) in pairs
            if later > axis and has is not None and has in shards
        }
        if inner <= gathered:
            break
        gathered |= inner
    for axis in sorted(gathered, reverse=True):
        shard = axes[axis]
        assert shard is not None
        yield Move(MoveKind.GATHER, axis, shard.dim, local_outer(axes, axis, mesh))
        axes[axis] = None
    for axis, (_, wants) in pairs:
        if wants is not None and axes[axis] != wants:
            axes[axis] = wants
            yield Move(MoveKind.SLICE, axis, wants.dim, local_outer(axes, axis, mesh))


def without(spec: ShardingSpec, axes: set[int]) -> ShardingSpec:
    """The same, whole along some axes."""
    return ShardingSpec(tuple(None if axis in axes else shard for axis, shard in enumerate(spec.axes)))


@dataclass(frozen=True, slots=True)
class ViewedAs:
    """A view of what lies in a certain way.

    Attributes:
        source: how the view's source has to lie: as it does, but whole along axes that the view cannot follow.
        results: how each of its results lies then.
        arguments: of the call on each device, but for the source.
    """

    source: ShardingSpec
    results: tuple[ShardingSpec, ...]
    arguments: tuple[object, ...]


RESHAPING = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze")
"""Run as reshapes to the shape that a device has."""
_SLICING = ("slice", "split", "split_with_sizes", "chunk")
_SAME = ("alias", "detach", "lift_fresh")


def viewed(
    name: str,
    arguments: Sequence[object],
    shape: Sequence[int],
    results: Sequence[Sequence[int]],
    spec: ShardingSpec,
    mesh: Sequence[int],
) -> ViewedAs:
    """Follows a view.

    Args:
        name: of the operator, such as 'transpose'.
        arguments: of the call, but for the source.
        shape: of the source as a whole.
        results: shapes of the results as wholes.
    """
    followed: list[list[Shard | None]] = [[] for _ in results]
    lost: set[int] = set()
    for axis, shard in enumerate(spec.axes):
        found = None if shard is None else _follow(name, arguments, shape, results, shard, _parts(spec, mesh, shard))
        if shard is not None and found is None:
            lost.add(axis)
        for at, target in enumerate(followed):
            target.append(None if found is None else found[at])
    source = without(spec, lost)
    specs = tuple(ShardingSpec(tuple(axes)) for axes in followed)
    local = [local_shape(whole, each, mesh) for whole, each in zip(results, specs, strict=True)]
    return ViewedAs(source, specs, _local_arguments(name, arguments, shape, local_shape(shape, source, mesh), local))


def _parts(spec: ShardingSpec, mesh: Sequence[int], shard: Shard) -> int:
    """Into how many parts all axes together cut a digit."""
    return prod(size for size, each in zip(mesh, spec.axes, strict=True) if each == shard)


def _follow(
    name: str,
    arguments: Sequence[object],
    shape: Sequence[int],
    results: Sequence[Sequence[int]],
    shard: Shard,
    parts: int,
) -> list[Shard] | None:
    """Where a cut is in each of the results; None where it is in none."""
    if name in _SLICING:
        return _sliced(name, arguments, shape, results, shard)
    if name in RESHAPING:
        found = reshaped(shape, results[0], shard, parts)
        return None if found is None else [found]
    dim = _places(name, arguments, len(shape), len(results[0])).get(shard.dim)
    return None if dim is None else [replace(shard, dim=dim)] * len(results)


def _places(name: str, arguments: Sequence[object], num_dims: int, num_result_dims: int) -> dict[int, int]:
    """Which dim of the result each dim of the source is, of those that stay; of unknown views none."""
    dims = range(num_dims)
    if name in _SAME:
        return {dim: dim for dim in dims}
    if name == "t" or name == "transpose":
        first, second = (0, num_dims - 1) if name == "t" else (_dim(each, num_dims) for each in arguments[:2])
        return {dim: {first: second, second: first}.get(dim, dim) for dim in dims}
    if name == "permute":
        order = [_dim(each, num_dims) for each in arguments[0]]  # type: ignore[attr-defined]
        return {dim: at for at, dim in enumerate(order)}
    if name == "expand":
        return {dim: dim + num_result_dims - num_dims for dim in dims}
    if name in ("select", "unbind"):
        gone = _dim(_argument(arguments, 0, 0), num_dims)
        return {dim: dim - (gone < dim) for dim in dims if dim != gone}
    return {}


def reshaped(shape: Sequence[int], result: Sequence[int], shard: Shard, parts: int) -> Shard | None:
    """Where a cut is when the same elements, in the same order, have other dims."""
    inner = shape[shard.dim] // (shard.outer * parts) * prod(shape[shard.dim + 1 :])
    after = prod(result)
    for dim, size in enumerate(result):
        after //= max(1, size)
        if size > 1 and after <= inner < after * size and inner % after == 0 and after * size % (inner * parts) == 0:
            return Shard(dim, outer=after * size // (inner * parts))
    return None


def _sliced(
    name: str, arguments: Sequence[object], shape: Sequence[int], results: Sequence[Sequence[int]], shard: Shard
) -> list[Shard] | None:
    """Parts of a cut dim that have whole numbers of its outer parts are cut as it is."""
    dim = _dim(arguments[0] if name == "slice" and arguments else _argument(arguments, 1, 0), len(shape))
    if dim != shard.dim:
        return [shard] * len(results)
    one = shape[dim] // shard.outer
    if name == "slice" and (_argument(arguments, 1, 0) % one or _argument(arguments, 3, 1) != 1):  # type: ignore[operator]
        return None
    if any(result[dim] % one for result in results):
        return None
    return [Shard(dim, outer=result[dim] // one) for result in results]


def _local_arguments(
    name: str,
    arguments: Sequence[object],
    shape: Sequence[int],
    local: Sequence[int],
    results: Sequence[Sequence[int]],
) -> tuple[object, ...]:
    given = list(arguments)
    if name in RESHAPING:
        return (list(results[0]),)
    if name == "expand":
        return (list(results[0]), *given[1:])
    if name in _SLICING:
        dim = _dim(given[0] if name == "slice" and given else _argument(given, 1, 0), len(shape))
        factor = shape[dim] // max(1, local[dim])
        if name == "slice":
            start, end = _argument(given, 1, 0), _argument(given, 2, shape[dim])
            ends = [_bounded(each, shape[dim]) // factor for each in (start, end)]
            return (dim, *ends, *given[3:])
        if name == "split":
            return (given[0] // factor, *given[1:])  # type: ignore[operator]
        if name == "split_with_sizes":
            return ([size // factor for size in given[0]], *given[1:])  # type: ignore[attr-defined]
    return tuple(given)


def _bounded(at: object, size: int) -> int:
    assert isinstance(at, int)
    return max(0, min(at + size if at < 0 else at, size))


def _argument(arguments: Sequence[object], at: int, default: object) -> object:
    return arguments[at] if len(arguments) > at and arguments[at] is not None else default


def _dim(argument: object, num_dims: int) -> int:
    assert isinstance(argument, int)
    return argument % max(1, num_dims)


def is_possible(shape: Sequence[int], spec: ShardingSpec, mesh: Sequence[int]) -> bool:
    """Whether every cut gives equal parts, also inside of others of the same dim."""
    parts: dict[Shard, int] = {}
    for size, shard in zip(mesh, spec.axes, strict=True):
        if shard is not None:
            parts[shard] = parts.get(shard, 1) * size
    inside: dict[int, int] = {}  # what the outer parts of the next cut of a dim have to be a multiple of
    for shard, count in sorted(parts.items()):
        if (
            shard.dim >= len(shape)
            or shape[shard.dim] % (shard.outer * count)
            or shard.outer % inside.get(shard.dim, 1)
        ):
            return False
        inside[shard.dim] = shard.outer * count
    return True
