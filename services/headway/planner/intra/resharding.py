"""Reshards a tensor on a device mesh: from one sharding to another (dissertation table 3.2). Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from headway.core.sharding_spec import Shard, ShardingSpec
from headway.planner.intra.quantities import Floats

Bytes = TypeVar("Bytes", float, Floats)
"""On several meshes an array over them."""


class MeshLinks(Protocol):
    """The links along the axes of a device mesh."""

    def seconds(self, operation: str, num_bytes: float, *, axis: int) -> float:
        """Seconds of a collective among the devices along an axis, in which `num_bytes` leave each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective(Generic[Bytes]):
    """A collective along a mesh axis, as a step of resharding.

    Attributes:
        operation: 'all_gather', 'all_to_all', 'all_reduce' or 'reduce_scatter'.
        sent_bytes: bytes that leave each device.
    """

    operation: str
    axis: int
    sent_bytes: Bytes


def reshard(
    num_bytes: Bytes, source: ShardingSpec, target: ShardingSpec, mesh_shape: Sequence[Bytes]
) -> Iterator[Collective[Bytes]]:
    """Finds the collectives that reshard a tensor from `source` to `target`.

    An axis that is to cut another dim exchanges shards (all-to-all), one that is to cut none gathers them; to cut what
    is whole takes none. Only the last axis that cuts a dim can be taken from it or put to it.

    Args:
        num_bytes: of the whole tensor.
    """
    axes = list(source.axes)
    local = num_bytes / source.num_shards(mesh_shape)
    while (axis := _next_axis(axes, target.axes)) is not None:
        size, old, new = mesh_shape[axis], axes[axis], target.axes[axis]
        if old is None:
            axes[axis] = new
            local = local / size
        elif new != old and _may_take(axes, target.axes, axis):
            yield Collective(operation="all_to_all", axis=axis, sent_bytes=local * (size - 1) / size)
            axes[axis] = new
        else:
            yield Collective(operation="all_gather", axis=axis, sent_bytes=local * (size - 1))
            axes[axis] = None
            local = local * size


def reshard_s(
    num_bytes: float, source: ShardingSpec, target: ShardingSpec, mesh_shape: Sequence[int], links: MeshLinks
) -> float:
    """Seconds that `reshard`'s collectives take."""
    steps = reshard(num_bytes, source, target, mesh_shape)
    return sum(links.seconds(step.operation, step.sent_bytes, axis=step.axis) for step in steps)


def _next_axis(axes: Sequence[Shard | None], target: Sequence[Shard | None]) -> int | None:
    """Chooses the axis to change next: to cut if one can, else to exchange, else to gather; None where nothing
    differs."""
    wrong = [axis for axis, (old, new) in enumerate(zip(axes, target, strict=True)) if old != new]
    if not wrong:
        return None
    free = [a for a in range(len(axes)) if axes[a] is not None and _is_last(axes, a, axes[a])]
    cuts = [a for a in wrong if axes[a] is None and _may_take(axes, target, a)]
    exchanges = [a for a in wrong if a in free and _may_take(axes, target, a)]
    gathers = [a for a in reversed(wrong) if a in free]
    contested = {axes[a] for a in wrong} | {target[a] for a in wrong}
    blocking = [a for a in reversed(free) if axes[a] in contested]
    return next(iter([*cuts, *exchanges, *gathers, *blocking]))


def _may_take(axes: Sequence[Shard | None], target: Sequence[Shard | None], axis: int) -> bool:
    """Whether the axis can cut as it is to: those before it that cut the same parts are as they are to be, and none
    behind it cuts them."""
    shard = target[axis]
    earlier = zip(axes[:axis], target[:axis], strict=True)
    return _is_last(axes, axis, shard) and all((old == shard) == (new == shard) for old, new in earlier)


def _is_last(axes: Sequence[Shard | None], axis: int, shard: Shard | None) -> bool:
    """Whether no later axis cuts the same parts of that dim."""
    return shard is not None and shard not in axes[axis + 1 :]
