"""Finds meshes on which the operators of a layer can be split alike. Pure.

What can be split how depends on a mesh's shape only by which sizes divide, so that few problems are made for many
meshes.
"""

from collections.abc import Hashable, Sequence
from itertools import product
from math import prod

from headway.core.graph import Operator
from headway.planner.intra.layer import Layer
from headway.planner.intra.options import ShardingOptions
from headway.planner.intra.strategies import HEAVY, Splitter
from headway.planner.intra.training_graph import TrainingGraph


def alike_meshes(
    training: TrainingGraph, layer: Layer, shapes: Sequence[tuple[int, ...]], options: ShardingOptions
) -> list[list[int]]:
    """Groups meshes, by their indices: all that is possible on one of a group is possible on the others."""
    operators = [training.graph.operators[at] for at in (*layer.forward, *layer.backward)]
    sizes = sorted(_sizes(training, layer, operators))
    heavy = [operator for operator in operators if operator.kind in HEAVY]
    groups: dict[Hashable, list[int]] = {}
    for at, (outer, inner) in enumerate(shapes):
        divides = tuple((n % outer == 0, n % inner == 0, n % (outer * inner) == 0) for n in sizes)
        key: Hashable = outer > 1, inner > 1, divides
        if not all(_uses_all(operator, training, (outer, inner), options) for operator in heavy):
            key = key, (outer > inner) - (outer < inner)  # the larger axis is the one to be used
        groups.setdefault(key, []).append(at)
    return list(groups.values())


def _sizes(training: TrainingGraph, layer: Layer, operators: Sequence[Operator]) -> set[int]:
    """All that must divide: loops, dims of tensors, and inner parts of dims."""
    names = {name for operator in operators for name in (*operator.inputs, *operator.outputs)}
    sizes = {size for name in (*names, *layer.entering, *layer.leaving) for size in training.tensors[name].shape}
    for operator in operators:
        space = operator.space
        if space is None:
            continue
        loops = {dim.name: dim.size for dim in space.dims}
        sizes |= set(loops.values())
        for access in (*space.reads, *space.writes):
            for size, text in zip(training.tensors[access.tensor].shape, access.dims, strict=False):
                outer = 1
                for part in text.split("*"):
                    if size % outer == 0:
                        sizes.add(size // outer)
                    outer *= int(part) if part.isdigit() else loops.get(part, 1)
    return sizes


def _uses_all(operator: Operator, training: TrainingGraph, shape: tuple[int, int], options: ShardingOptions) -> bool:
    """Whether some split gives every device work of its own."""
    splitter = Splitter(operator, training.tensors, shape)
    batch_loops = training.batch_loops.get(operator.name, frozenset())
    choices = options.loops(operator, splitter.loops, batch_loops, training.tensors, shape)
    made = (splitter.strategy(picked) for picked in product(*choices))
    num_devices = prod(shape)
    return any(strategy is not None and strategy.num_parts(shape) == num_devices for strategy in made)
