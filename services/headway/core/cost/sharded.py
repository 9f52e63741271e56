"""One device's part of an operator whose loops are split. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from headway.core.errors import InvalidArgumentError
from headway.core.graph import Operator, TensorSpec
from headway.core.iteration import Access, Dim, loops_of

Splits = Mapping[str, int]
"""The number of parts that loops of an operator are split into, by the loops' names."""

WHOLE: Splits = {}


def shard_operator(
    operator: Operator, tensors: Mapping[str, TensorSpec], splits: Splits
) -> tuple[Operator, Mapping[str, TensorSpec]]:
    """Returns the operator that each device computes, and the tensors that it reads and writes there.

    Raises:
        InvalidArgumentError: the operator has no such loop, or one that does not divide.
    """
    if not splits:
        return operator, tensors
    space = operator.space
    sizes = {} if space is None else {dim.name: dim.size for dim in space.dims}
    for loop, parts in splits.items():
        if sizes.get(loop, 0) % parts or loop not in sizes:
            raise InvalidArgumentError(
                f"{operator.name} cannot be split into {parts} along '{loop}'.",
                hint=f"Its loops are {', '.join(f'{name} of {size}' for name, size in sizes.items()) or 'unknown'}.",
                field="splits",
            )
    assert space is not None
    shards = {
        access.tensor: replace(tensors[access.tensor], shape=_shape(access, tensors[access.tensor].shape, splits))
        for access in (*space.reads, *space.writes)
    }
    sharded = replace(
        operator,
        flops=operator.flops // prod(splits.values()),
        bytes_read=int(operator.bytes_read * _share(space.reads, tensors, splits)),
        bytes_written=int(operator.bytes_written * _share(space.writes, tensors, splits)),
        space=replace(
            space, dims=tuple(Dim(name=dim.name, size=dim.size // splits.get(dim.name, 1)) for dim in space.dims)
        ),
    )
    return sharded, {**tensors, **shards}


def _shape(access: Access, shape: tuple[int, ...], splits: Splits) -> tuple[int, ...]:
    parts = (prod(splits.get(loop, 1) for loop in loops_of(dim)) for dim in access.dims)
    return tuple(size // part for size, part in zip(shape, parts, strict=True)) if access.dims else shape


def _share(accesses: Iterable[Access], tensors: Mapping[str, TensorSpec], splits: Splits) -> float:
    """The share of the operands' bytes that one device has."""
    whole = part = 0.0
    for access in accesses:
        num_bytes = tensors[access.tensor].num_bytes
        whole += num_bytes
        part += num_bytes / prod(parts for loop, parts in splits.items() if loop in access.loops)
    return part / whole if whole else 1.0
