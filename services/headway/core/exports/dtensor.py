"""A plan as placements of PyTorch's DTensor, by the names of parameters (JSON). Pure."""

import json
from collections.abc import Sequence
from math import prod

from headway.core.errors import FailedPreconditionError
from headway.core.graph import Graph
from headway.core.plan.training import ParameterSharding, TrainingPlan, TrainingStage
from headway.core.sharding_spec import Shard, ShardingSpec

Document = dict[str, object]


def dtensor_placements(plan: TrainingPlan, graph: Graph) -> str:
    """For each stage its mesh, by the ranks of its devices, and how its parameters lie on it.

    Placements are written as Python makes them of `torch.distributed.tensor`: `Shard(0)`, `Replicate()`, and
    `_StridedShard(0, split_factor=3)` for a dim of three parts, such as a fused projection, each of which is cut.
    ZeRO shards the optimizer's state (1), the gradient (2) and the parameter (3) as `zero_placements` say.

    Raises:
        FailedPreconditionError: two mesh axes cut different parts of one dim, for which DTensor has no placements.
    """
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors}
    stages = [
        {
            "mesh": _ranks(stage),
            "micro_batch": plan.micro_batch_of(stage),
            "recomputes": stage.recomputes,
            "parameters": {
                each.parameter: _parameter(each, shapes[each.parameter], stage.mesh.shape) for each in stage.parameters
            },
        }
        for stage in plan.stages
    ]
    document = {
        "model": plan.model,
        "plan": plan.plan_id,
        "micro_batch": plan.micro_batch,
        "num_micro_batches": plan.num_micro_batches,
        "slices": list(plan.slices),
        "stages": stages,
    }
    return json.dumps(document, indent=1) + "\n"


def _ranks(stage: TrainingStage) -> object:
    """The ranks of a stage's devices, in nested lists of its mesh's shape."""
    ranks: list[object] = list(range(stage.first_device, stage.first_device + stage.mesh.num_devices))
    for size in reversed(stage.mesh.shape[1:]):
        ranks = [ranks[at : at + size] for at in range(0, len(ranks), size)]
    return ranks


def _parameter(sharding: ParameterSharding, shape: Sequence[int], mesh_shape: Sequence[int]) -> Document:
    _check(sharding)
    document: Document = {"placements": [_placement(shard) for shard in sharding.spec.axes]}
    if sharding.zero_stage:
        zero = zero_placements(sharding.spec, shape, mesh_shape)
        document |= {"zero_stage": sharding.zero_stage, "zero_placements": zero}
    return document


def _check(sharding: ParameterSharding) -> None:
    outer: dict[int, int] = {}
    for shard in sharding.spec.axes:
        if shard is not None and outer.setdefault(shard.dim, shard.outer) != shard.outer:
            raise FailedPreconditionError(
                f"DTensor has no placements for {sharding.parameter}: two mesh axes cut different parts of its dim "
                f"{shard.dim}.",
                hint="Plan with one-dimensional meshes.",
            )


def _placement(shard: Shard | None) -> str:
    if shard is None:
        return "Replicate()"
    return f"Shard({shard.dim})" if shard.outer == 1 else f"_StridedShard({shard.dim}, split_factor={shard.outer})"


def zero_placements(spec: ShardingSpec, shape: Sequence[int], mesh_shape: Sequence[int]) -> list[str]:
    """The placements of what ZeRO shards further, along all mesh axes that replicate the parameter.

    A dim that later axes cut already is cut inside their parts, as `fully_shard` does it.
    """
    left = [size // _parts(spec, dim, mesh_shape) for dim, size in enumerate(shape)]
    placements = [_placement(shard) for shard in spec.axes]
    for axis, size in enumerate(mesh_shape):
        if spec.axes[axis] is not None or size == 1 or not shape:
            continue
        dim = next((dim for dim, length in enumerate(left) if length % size == 0), 0)
        left[dim] = -(-left[dim] // size)
        later = [shard for shard in spec.axes[axis + 1 :] if shard is not None and shard.dim == dim]
        factor = prod(shard.outer for shard in later[:1]) * _parts(spec, dim, mesh_shape, first=axis + 1)
        placements[axis] = _placement(Shard(dim, outer=factor))
    return placements


def _parts(spec: ShardingSpec, dim: int, mesh_shape: Sequence[int], *, first: int = 0) -> int:
    """Parts that the mesh axes from `first` on cut a dim into."""
    axes = list(zip(spec.axes, mesh_shape, strict=True))[first:]
    return prod(size for shard, size in axes if shard is not None and shard.dim == dim)
