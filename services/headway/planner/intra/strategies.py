"""Enumerates the ways to split one operator over a device mesh, from its iteration space (dissertation table 3.3).
Pure.

A mesh axis splits one of the operator's loops or none. A loop that indexes an operand shards it along that axis; one
that is summed leaves partial results, which an all-reduce joins. What cannot be split so is left out: loops along which
all elements must meet, windows that slide, and operands whose index is found in the data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from headway.core.graph import Operator, OperatorKind, TensorSpec
from headway.core.iteration import Access, IterationSpace, Reduction, loops_of
from headway.core.sharding_spec import Shard, ShardingSpec

# Operators that are split whenever they can be: to compute them twice would cost more than any communication.
HEAVY = (
    OperatorKind.MATMUL,
    OperatorKind.BATCHED_MATMUL,
    OperatorKind.CONVOLUTION,
    OperatorKind.ATTENTION,
)
# Their operands are indexed otherwise than their results wherever no loop says so.
_EXACT = (OperatorKind.COPY, OperatorKind.SCATTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialSum:
    """A result of which each device along an axis has a part; an all-reduce joins the parts.

    Attributes:
        output: which of the operator's written operands.
        how: MOMENTS stands for what has to be summed before the operator can compute.
    """

    output: int
    axis: int
    how: Reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way to split one operator over the mesh.

    Attributes:
        loops: for each mesh axis the loop that it splits; None where devices along it do the same.
        reads, writes: how the operands lie, in the order of the iteration space.
        partial: what has to be joined.
    """

    loops: tuple[str | None, ...]
    reads: tuple[ShardingSpec, ...]
    writes: tuple[ShardingSpec, ...]
    partial: tuple[PartialSum, ...]

    def num_parts(self, mesh_shape: Sequence[int]) -> int:
        """Number of devices that do different work."""
        return prod(size for size, loop in zip(mesh_shape, self.loops, strict=True) if loop is not None)

    @property
    def name(self) -> str:
        """A name for people, e.g. 'm->0 k->1'."""
        return " ".join(f"{loop}->{axis}" for axis, loop in enumerate(self.loops) if loop is not None) or "replicated"


def strategies(
    operator: Operator,
    tensors: Mapping[str, TensorSpec],
    mesh_shape: Sequence[int],
    choices: Sequence[Sequence[str | None]] | None = None,
) -> tuple[Strategy, ...]:
    """All strategies that divide evenly; at least one, as every operator can be computed on each device.

    Of heavy operators only those that use most devices.

    Args:
        choices: what each mesh axis may split; None for anything.
    """
    splitter = Splitter(operator, tensors, mesh_shape)
    if choices is None:
        choices = [[None, *splitter.loops] if size > 1 else [None] for size in mesh_shape]
    found = [made for picked in product(*choices) if (made := splitter.strategy(picked)) is not None]
    if operator.kind in HEAVY:
        most = max(strategy.num_parts(mesh_shape) for strategy in found)
        found = [strategy for strategy in found if strategy.num_parts(mesh_shape) == most]
    return tuple(found)


def splittable_loops(operator: Operator) -> tuple[str, ...]:
    """The loops whose parts can be computed apart."""
    space = operator.space
    if space is None:
        return ()
    sliding = {
        loop for access in (*space.reads, *space.writes) for dim in access.dims if "+" in dim for loop in loops_of(dim)
    }
    needed = space.reads if operator.kind in _EXACT else ()
    return tuple(
        dim.name
        for dim in space.dims
        if dim.size > 1
        and dim.name not in sliding
        and all(_can_split(access, dim.name) for access in space.writes)
        and all(dim.name in access.loops or not access.dims for access in needed)
    )


def _can_split(access: Access, loop: str) -> bool:
    """Whether parts of the loop give parts of what is written, partial results of it, or each all of it."""
    if loop in access.reduced:
        return access.reduced[loop] is not Reduction.WHOLE
    return loop in access.loops or all(access.dims)


class Splitter:
    """Makes the strategies of one operator.

    Attributes:
        loops: that can be split.
        reads, writes: for each operand how each loop shards it when it is split; without those that do not.
    """

    def __init__(self, operator: Operator, tensors: Mapping[str, TensorSpec], mesh_shape: Sequence[int]) -> None:
        space = operator.space or IterationSpace(dims=(), reads=(), writes=())
        self.loops = splittable_loops(operator)
        self._space = space
        self._mesh_shape = mesh_shape
        self._sizes = {dim.name: dim.size for dim in space.dims}
        self.reads = [self._shards(access, tensors[access.tensor].shape) for access in space.reads]
        self.writes = [self._shards(access, tensors[access.tensor].shape) for access in space.writes]

    def strategy(self, loops: tuple[str | None, ...]) -> Strategy | None:
        """Makes the strategy that splits these loops; None where a loop does not divide."""
        left = dict(self._sizes)
        for loop, size in zip(loops, self._mesh_shape, strict=True):
            if loop is not None:
                if left[loop] % size:
                    return None
                left[loop] //= size
        return Strategy(
            loops=loops,
            reads=tuple(_spec(shards, loops) for shards in self.reads),
            writes=tuple(_spec(shards, loops) for shards in self.writes),
            partial=tuple(_partial(self._space, loops)),
        )

    def _shards(self, access: Access, shape: Sequence[int]) -> dict[str, Shard]:
        """Finds how each loop shards an operand when it is split; of loops along two dims the first one counts.

        An operand that is a slice, such as one third of a fused projection, is a part of its dim: all parts are cut
        alike.
        """
        shards: dict[str, Shard] = {}
        for dim, text in enumerate(access.dims):
            outer = 1
            for part in text.split("*"):
                if "+" not in part and part in self._sizes and shape[dim] % outer == 0:
                    shards.setdefault(part, Shard(dim, outer=outer))
                outer *= int(part) if part.isdigit() else self._sizes.get(part, 1)
        return shards


def _spec(shards: Mapping[str, Shard], loops: Sequence[str | None]) -> ShardingSpec:
    return ShardingSpec(tuple(None if loop is None else shards.get(loop) for loop in loops))


def _partial(space: IterationSpace, loops: Sequence[str | None]) -> Iterator[PartialSum]:
    for output, access in enumerate(space.writes):
        for axis, loop in enumerate(loops):
            if loop is not None and loop in access.reduced:
                yield PartialSum(output=output, axis=axis, how=access.reduced[loop])
