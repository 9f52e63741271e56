"""The sharding of a tensor over the devices of a mesh (dissertation section 3.4.1, table 3.1). Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Size = TypeVar("Size", int, float, NDArray[np.float64])
"""Devices along a mesh axis; of several meshes an array over them."""


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """A mesh axis cuts a dim of the tensor into as many equal parts as it has devices.

    Attributes:
        dim: of the tensor.
        outer: parts that the dim consists of, each of which is cut; 1 where the dim is cut as a whole. Rows that are
            batch times sequence, cut along the sequence, have the batch as `outer`.
    """

    dim: int
    outer: int = 1


@dataclass(frozen=True, slots=True)
class ShardingSpec:
    """A tensor's sharding: for each mesh axis the dim that it shards, or None where the tensor is replicated along it.

    Where several axes cut the same parts of a dim, the first axis cuts first.
    """

    axes: tuple[Shard | None, ...]

    @classmethod
    def replicated(cls, num_axes: int) -> "ShardingSpec":
        """The whole tensor on every device."""
        return cls((None,) * num_axes)

    @property
    def is_replicated(self) -> bool:
        return not any(self.axes)

    def num_shards(self, mesh_shape: Sequence[Size]) -> Size | int:
        """Different parts of the tensor on a mesh of that shape."""
        return prod(size for size, shard in zip(mesh_shape, self.axes, strict=True) if shard is not None)

    def fits(self, shape: Sequence[int], mesh_shape: Sequence[int]) -> bool:
        """Whether every dim divides by the devices that shard it."""
        parts: dict[Shard, int] = {}
        for size, shard in zip(mesh_shape, self.axes, strict=True):
            if shard is not None:
                parts[shard] = parts.get(shard, 1) * size
        return all(
            shard.dim < len(shape) and shape[shard.dim] % (shard.outer * num_parts) == 0
            for shard, num_parts in parts.items()
        )

    def label(self, num_dims: int) -> str:
        """Returns the sharding as the dissertation writes it, e.g. S0R or S01R; a dim that is cut in its inner part has
        an apostrophe.
        """
        parts = []
        for dim in range(num_dims):
            cuts = [(axis, shard) for axis, shard in enumerate(self.axes) if shard is not None and shard.dim == dim]
            inner = "'" if any(shard.outer > 1 for _, shard in cuts) else ""
            parts.append("S" + "".join(str(axis) for axis, _ in cuts) + inner if cuts else "R")
        return "".join(parts)


def sharding_specs(shape: Sequence[int], mesh_shape: Sequence[int]) -> Iterator[ShardingSpec]:
    """Yields all shardings that divide the shape evenly, the replicated one first; axes of one device shard nothing."""
    choices: list[list[Shard | None]] = [
        [None, *(Shard(dim) for dim in range(len(shape)))] if size > 1 else [None] for size in mesh_shape
    ]
    for axes in product(*choices):
        spec = ShardingSpec(axes)
        if spec.fits(shape, mesh_shape):
            yield spec
