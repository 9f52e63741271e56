"""A plan's shardings of a stage as its ranks run them. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from headway.core.batching import at_batch
from headway.core.execution.execution import StageSpec
from headway.core.execution.sharding import SplitOperator, StageSharding, TensorTile
from headway.core.graph import Graph, TensorSpec
from headway.core.iteration import Access, IterationSpace
from headway.core.plan.training import OperatorSharding, TrainingStage
from headway.core.sharding_spec import Shard, ShardingSpec


def shared_axes(stage: TrainingStage, loops: Mapping[str, Collection[str]]) -> tuple[int, ...]:
    """The mesh axes along which devices share more than examples.

    Args:
        loops: of each operator those that run along examples.
    """
    return tuple(
        axis
        for axis, size in enumerate(stage.mesh.shape)
        if size > 1
        and any(each.splits[axis] and each.splits[axis] not in loops.get(each.operator, ()) for each in stage.shardings)
    )


def with_sharding(
    spec: StageSpec, stage: TrainingStage, graph: Graph, shared: Sequence[int], whole: Collection[str]
) -> StageSpec:
    """The stage with the shardings along some of its mesh's axes; the devices along all others are replicas.

    Args:
        graph: captured with any number of examples.
        whole: parameters that every rank holds all of.
    """
    mesh = stage.mesh.shape
    sharding = StageSharding(mesh=tuple(mesh[axis] for axis in shared), operators=())
    ordered = replace(spec, ranks=tuple(_by_team(spec.ranks, mesh, shared)), sharding=sharding)
    grown = at_batch(graph, ordered.examples)
    tensors, operators = grown.tensors_by_name(), {each.name: each for each in grown.operators}
    splits = []
    for each in stage.shardings:
        space = operators[each.operator].space
        if space is not None and any(each.splits[axis] for axis in shared):
            sizes = {dim.name: dim.size for dim in space.dims}
            splits.append(_split(each, space, tensors, sizes, shared))
    parameters = [
        TensorTile(tensor=each.parameter, spec=_along(each.spec, shared))
        for each in stage.parameters
        if each.parameter not in whole and not _along(each.spec, shared).is_replicated
    ]
    return replace(ordered, sharding=replace(sharding, operators=tuple(splits), parameters=tuple(parameters)))


def _by_team(ranks: Sequence[int], mesh: Sequence[int], shared: Sequence[int]) -> Iterator[int]:
    """The ranks with those of a team one behind the other."""
    places = list(product(*map(range, mesh)))
    others = [axis for axis in range(len(mesh)) if axis not in shared]

    def key(at: int) -> tuple[list[int], list[int]]:
        return [places[at][axis] for axis in others], [places[at][axis] for axis in shared]

    return (ranks[at] for at in sorted(range(len(ranks)), key=key))


def _split(
    sharding: OperatorSharding,
    space: IterationSpace,
    tensors: Mapping[str, TensorSpec],
    sizes: Mapping[str, int],
    shared: Sequence[int],
) -> SplitOperator:
    loops = [sharding.splits[axis] for axis in shared]
    return SplitOperator(
        operator=sharding.operator,
        reads=tuple(
            TensorTile(
                tensor=access.tensor,
                spec=ShardingSpec(tuple(_shard(access, tensors[access.tensor].shape, loop, sizes) for loop in loops)),
            )
            for access in space.reads
        ),
        result=None if sharding.result is None else _along(sharding.result, shared),
        makes=_makes(space, tensors, loops, sizes),
    )


def _makes(
    space: IterationSpace, tensors: Mapping[str, TensorSpec], loops: Sequence[str], sizes: Mapping[str, int]
) -> ShardingSpec | None:
    """How loops that run along no operand cut the first result; None where they do not."""
    read = {loop for access in space.reads for loop in access.loops}
    own = [loop if loop not in read else "" for loop in loops]
    first = next(iter(space.writes), None)
    if first is None or not any(own):
        return None
    return ShardingSpec(tuple(_shard(first, tensors[first.tensor].shape, loop, sizes) for loop in own))


def _along(spec: ShardingSpec, axes: Sequence[int]) -> ShardingSpec:
    return ShardingSpec(tuple(spec.axes[axis] for axis in axes))


def _shard(access: Access, shape: Sequence[int], loop: str, sizes: Mapping[str, int]) -> Shard | None:
    """The dim of an operand that a loop runs along; what loops and numbers before it in the same dim make is its number
    of outer parts."""
    for dim, text in enumerate(access.dims if loop else ()):
        outer = 1
        for part in text.split("*"):
            if part == loop and shape[dim] % outer == 0:
                return Shard(dim, outer=outer)
            outer *= int(part) if part.isdigit() else sizes.get(part, 1)
    return None
