"""The cost of resharding: from one sharding of a tensor to another on the same mesh (dissertation table 3.2). Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.core.sharding_spec import Shard, ShardingSpec


class MeshLinks(Protocol):
    """The lines along the axes of a device mesh."""

    def seconds(self, operation: str, num_bytes: float, *, axis: int) -> float:
        """Returns the seconds of a collective among the devices along an axis, in which `num_bytes` leave each of
        them.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective along a mesh axis.

    Attributes:
        operation: 'all_gather', 'all_to_all', 'all_reduce' or 'reduce_scatter'.
        sent_bytes: that leave each device.
    """

    operation: str
    axis: int
    sent_bytes: float


def reshard(
    num_bytes: float, source: ShardingSpec, target: ShardingSpec, mesh_shape: Sequence[int]
) -> Iterator[Collective]:
    """The collectives that make `target` of `source`.

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
            local /= size
        elif new is not None and new != old and _is_last(axes, axis, new):
            yield Collective(operation="all_to_all", axis=axis, sent_bytes=local * (size - 1) / size)
            axes[axis] = new
        else:
            yield Collective(operation="all_gather", axis=axis, sent_bytes=local * (size - 1))
            axes[axis] = None
            local *= size


def reshard_s(
    num_bytes: float, source: ShardingSpec, target: ShardingSpec, mesh_shape: Sequence[int], links: MeshLinks
) -> float:
    """Returns the seconds that `reshard` takes."""
    steps = reshard(num_bytes, source, target, mesh_shape)
    return sum(links.seconds(step.operation, step.sent_bytes, axis=step.axis) for step in steps)


def _next_axis(axes: Sequence[Shard | None], target: Sequence[Shard | None]) -> int | None:
    """The axis to change next: to cut if one can, else to exchange, else to gather; None where nothing differs."""
    wrong = [axis for axis, (old, new) in enumerate(zip(axes, target, strict=True)) if old != new]
    if not wrong:
        return None
    free = [a for a in range(len(axes)) if axes[a] is not None and _is_last(axes, a, axes[a])]
    cuts = [a for a in wrong if axes[a] is None and _is_last(axes, a, target[a])]
    exchanges = [a for a in wrong if a in free and target[a] is not None and _is_last(axes, a, target[a])]
    gathers = [a for a in reversed(wrong) if a in free]
    return next(iter([*cuts, *exchanges, *gathers, *reversed(free)]))


def _is_last(axes: Sequence[Shard | None], axis: int, shard: Shard | None) -> bool:
    """Whether no later axis cuts the same parts of that dim."""
    return shard is not None and shard not in axes[axis + 1 :]
