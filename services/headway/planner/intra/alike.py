"""Finds meshes, and sizes of micro-batches, on which the operators of a layer can be split alike. Pure.

What can be split how depends on a mesh's shape and on the number of examples only by which sizes divide, so that few
problems are made for many meshes and sizes.
"""

from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from math import prod

from headway.core.graph import Operator, TensorRole
from headway.core.iteration import IterationSpace
from headway.planner.intra.layer import Layer
from headway.planner.intra.options import ShardingOptions
from headway.planner.intra.strategies import HEAVY, Splitter
from headway.planner.intra.training_graph import TrainingGraph

_NONE = IterationSpace(dims=(), reads=(), writes=())


def alike_meshes(
    steps: Sequence[TrainingGraph], layer: Layer, shapes: Sequence[tuple[int, ...]], options: ShardingOptions
) -> list[list[tuple[int, int]]]:
    """Groups pairs of a step and a mesh, by their indices: all that is possible on one of a group is possible on the
    others.

    Args:
        steps: one training step for several sizes of micro-batches.
    """
    at_once = [[step.graph.operators[at] for at in (*layer.forward, *layer.backward)] for step in steps]
    must_divide = [_sizes(step, layer, operators) for step, operators in zip(steps, at_once, strict=True)]
    rows = sorted(set(zip(*must_divide, strict=True)))
    groups: dict[Hashable, list[tuple[int, int]]] = {}
    for number, (step, operators) in enumerate(zip(steps, at_once, strict=True)):
        heavy = [operator for operator in operators if operator.kind in HEAVY]
        sizes, structure = [row[number] for row in rows], _structure(step, operators)
        for at, (outer, inner) in enumerate(shapes):
            divides = tuple([(n % outer == 0, n % inner == 0, n % (outer * inner) == 0) for n in sizes])
            key: Hashable = structure, outer > 1, inner > 1, divides
            if not all(_uses_all(operator, step, (outer, inner), options) for operator in heavy):
                key = key, (outer > inner) - (outer < inner)  # the larger axis is the one to be used
            groups.setdefault(key, []).append((number, at))
    return list(groups.values())


def _sizes(training: TrainingGraph, layer: Layer, operators: Sequence[Operator]) -> list[int]:
    """All that must divide, in the same order for every size of micro-batches: loops, dims of tensors, and inner parts
    of dims."""
    names = dict.fromkeys(name for operator in operators for name in (*operator.inputs, *operator.outputs))
    tensors = dict.fromkeys((*names, *layer.entering, *layer.leaving))
    sizes = [size for name in tensors for size in training.tensors[name].shape]
    sizes += [dim.size for operator in operators for dim in (operator.space or _NONE).dims]
    return sizes + [size // outer for size, outer in _parts(training, operators)]


def _parts(training: TrainingGraph, operators: Sequence[Operator]) -> Iterator[tuple[int, int]]:
    """The dims that operators access, with the product of the loops that run outside of each of their loops."""
    for operator in operators:
        space = operator.space or _NONE
        loops = {dim.name: dim.size for dim in space.dims}
        for access in (*space.reads, *space.writes):
            for size, text in zip(training.tensors[access.tensor].shape, access.dims, strict=False):
                outer = 1
                for part in text.split("*"):
                    yield size, outer
                    outer *= int(part) if part.isdigit() else loops.get(part, 1)


def _structure(training: TrainingGraph, operators: Sequence[Operator]) -> Hashable:
    """What else a number of examples changes: loops that run once, which parts of dims are the same and which cannot be
    cut, and which operand of an operator is the largest."""
    runs_once = tuple([dim.size == 1 for operator in operators for dim in (operator.space or _NONE).dims])
    numbers = {1: 0}
    parts = tuple(
        [
            numbers.setdefault(outer, len(numbers)) if size % outer == 0 else None
            for size, outer in _parts(training, operators)
        ]
    )
    ranks = tuple([_ranks(training, operator) for operator in operators if not operator.is_backward])
    return runs_once, parts, ranks


def _ranks(training: TrainingGraph, operator: Operator) -> tuple[int, ...]:
    """Which of the operands that are no parameters is the largest: an operator that does not lead follows it."""
    if operator.kind in HEAVY:
        return ()
    tensors = [training.tensors[name] for name in operator.inputs]
    num_bytes = [tensor.num_bytes for tensor in tensors if tensor.role is not TensorRole.PARAMETER]
    ascending = sorted(set(num_bytes))
    return tuple([ascending.index(each) for each in num_bytes])


def _uses_all(operator: Operator, training: TrainingGraph, shape: tuple[int, int], options: ShardingOptions) -> bool:
    """Whether some split gives every device work of its own."""
    splitter = Splitter(operator, training.tensors, shape)
    choices = options.loops(operator, splitter.loops, training, shape)
    made = (splitter.strategy(picked) for picked in product(*choices))
    num_devices = prod(shape)
    return any(strategy is not None and strategy.num_parts(shape) == num_devices for strategy in made)
