"""How one operator's results lie when mesh axes split its loops, and why a split cannot be."""

from collections.abc import Iterator, Mapping, Sequence

from headway.core.graph import Operator, TensorSpec
from headway.core.iteration import Access, Reduction
from headway.core.sharding_spec import Shard, ShardingSpec


def split_faults(operator: Operator, splits: Sequence[str], mesh_shape: Sequence[int]) -> Iterator[str]:
    """Says why an operator's loops cannot be split so over a mesh, in parts of sentences."""
    if len(splits) != len(mesh_shape):
        yield f"is split over {len(splits)} axes, and the mesh has {len(mesh_shape)}"
        return
    sizes = loop_sizes(operator)
    parts: dict[str, int] = {}
    for loop, size in zip(splits, mesh_shape, strict=True):
        if loop:
            parts[loop] = parts.get(loop, 1) * size
    for loop, count in parts.items():
        if loop not in sizes:
            yield f"splits loop '{loop}', and has {', '.join(sizes) or 'none that are known'}"
        elif sizes[loop] % count:
            yield f"splits loop '{loop}' of {sizes[loop]} into {count} parts, which does not divide"
        elif count > 1:
            yield from (f"splits loop '{loop}', {why}" for why in _obstacles(operator, loop))


def _obstacles(operator: Operator, loop: str) -> Iterator[str]:
    """Says why parts of a loop do not give parts of the results."""
    assert operator.space is not None
    for access in operator.space.writes:
        if access.reduced.get(loop) is Reduction.WHOLE:
            yield f"along which '{access.tensor}' needs all elements at once"
            return
        is_placed = loop in access.reduced or any(loop in _parts(dim) for dim in access.dims)
        if not is_placed and "" in access.dims:
            yield f"and where it puts '{access.tensor}' is found in the data"
            return
    for access in (*operator.space.reads, *operator.space.writes):
        if any("+" in dim and loop in _parts(dim) for dim in access.dims):
            yield f"along which windows of '{access.tensor}' overlap"
            return


def loop_sizes(operator: Operator) -> dict[str, int]:
    return {} if operator.space is None else {dim.name: dim.size for dim in operator.space.dims}


def lies(access: Access, tensor: TensorSpec, splits: Sequence[str], sizes: Mapping[str, int]) -> ShardingSpec:
    """How an operand lies where these loops are split, before partial results are joined."""
    return ShardingSpec(tuple(_shard(access, tensor, loop, sizes) if loop else None for loop in splits))


def partial_axes(access: Access, splits: Sequence[str]) -> set[int]:
    """The mesh axes along which devices have partial results of what is written; moments are summed beforehand."""
    return {
        axis
        for axis, loop in enumerate(splits)
        if loop in access.reduced and access.reduced[loop] is not Reduction.MOMENTS
    }


def _shard(access: Access, tensor: TensorSpec, loop: str, sizes: Mapping[str, int]) -> Shard | None:
    """The dim that a loop runs along, which consists of as many parts as loops and slices outside of it make."""
    for dim, text in enumerate(access.dims):
        outer = 1
        for part in text.split("*"):
            if part == loop and tensor.shape[dim] % outer == 0:
                return Shard(dim, outer=outer)
            outer *= int(part) if part.isdigit() else sizes.get(part, 1)
    return None


def _parts(dim: str) -> list[str]:
    return dim.replace("+", "*").split("*")


def spec_faults(tensor: TensorSpec, spec: ShardingSpec, mesh_shape: Sequence[int]) -> Iterator[str]:
    """Says why a tensor cannot lie so on a mesh, in parts of sentences."""
    if len(spec.axes) != len(mesh_shape):
        yield f"is sharded over {len(spec.axes)} axes, and the mesh has {len(mesh_shape)}"
        return
    parts: dict[tuple[int, int], int] = {}
    for shard, size in zip(spec.axes, mesh_shape, strict=True):
        if shard is not None:
            parts[shard.dim, shard.outer] = parts.get((shard.dim, shard.outer), 1) * size
    inside: dict[int, int] = {}  # what the next part of a dim has to be a multiple of
    for (dim, outer), count in sorted(parts.items()):
        if not 0 <= dim < len(tensor.shape):
            yield f"is sharded along dim {dim}, and has {len(tensor.shape)} dims"
        elif outer < 1 or tensor.shape[dim] % (outer * count) or outer % inside.get(dim, 1):
            yield f"has {tensor.shape[dim]} along dim {dim}, which {outer * count} parts do not divide"
        else:
            inside[dim] = outer * count
