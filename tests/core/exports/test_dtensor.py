"""Placements are read by PyTorch: what DTensor puts on each device is what the plan says that it holds."""

import json
from dataclasses import replace
from itertools import product
from math import prod

import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.distributed.tensor import Shard as TorchShard
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

from headway.core.errors import FailedPreconditionError
from headway.core.exports.dtensor import dtensor_placements, zero_placements
from headway.core.graph import Graph
from headway.core.plan.training import ParameterSharding
from headway.core.sharding_spec import Shard, ShardingSpec
from tests.core.exports.plans import BATCH, GPT, LLAMA, plan_of, searched, stage
from tests.profiler.capture.zoo import captured

_NAMES = {"Shard": TorchShard, "Replicate": Replicate, "_StridedShard": _StridedShard}


def placed(placements: list[str], whole: torch.Tensor, mesh_shape: tuple[int, ...], rank: int) -> torch.Tensor:
    """What DTensor puts on one device."""
    distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=prod(mesh_shape))
    try:
        mesh = DeviceMesh("cpu", torch.arange(prod(mesh_shape)).reshape(mesh_shape))
        read = [eval(placement, {}, _NAMES) for placement in placements]
        return distribute_tensor(whole, mesh, read, src_data_rank=None).to_local()
    finally:
        distributed.destroy_process_group()


def held(spec: ShardingSpec, whole: torch.Tensor, mesh_shape: tuple[int, ...], rank: int) -> torch.Tensor:
    """What a device holds by the definition of specs: of each of a dim's parts the piece of its place in the mesh."""
    place = [int(at) for at in torch.unravel_index(torch.tensor(rank), mesh_shape)]
    for shard, size, at in zip(spec.axes, mesh_shape, place, strict=True):
        if shard is not None:
            parts = whole.chunk(shard.outer, dim=shard.dim)
            whole = torch.cat([part.chunk(size, dim=shard.dim)[at] for part in parts], dim=shard.dim)
    return whole


def numbered(*shape: int) -> torch.Tensor:
    return torch.arange(prod(shape)).reshape(shape)


@pytest.mark.parametrize("name", [LLAMA, GPT])
def test_each_device_holds_what_the_plan_says(name: str) -> None:
    graph = captured(name, batch=BATCH)
    given = stage(graph, data=2, tensor=2)
    document = json.loads(dtensor_placements(plan_of(graph, [given]), graph))
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors}
    read = document["stages"][0]["parameters"]
    sharded = [each for each in given.parameters if not each.spec.is_replicated]
    assert sharded
    assert len(read) == len(given.parameters)
    for each, rank in product(given.parameters[:12], range(4)):
        whole = numbered(*shapes[each.parameter])
        found = placed(read[each.parameter]["placements"], whole, (2, 2), rank)
        assert torch.equal(found, held(each.spec, whole, (2, 2), rank)), each


def test_stages_have_the_plans_devices() -> None:
    graph, plan = searched(LLAMA, num_stages=2)
    document = json.loads(dtensor_placements(plan, graph))
    ranks = [torch.tensor(each["mesh"]) for each in document["stages"]]
    assert [tuple(mesh.shape) for mesh in ranks] == [each.mesh.shape for each in plan.stages]
    assert sorted(torch.cat([mesh.flatten() for mesh in ranks]).tolist()) == list(range(8))
    names = {name for each in document["stages"] for name in each["parameters"]}
    assert names == {tensor.name for tensor in graph.tensors if tensor.role == "parameter"}


@pytest.mark.parametrize(
    "spec",
    [
        ShardingSpec((None, None)),
        ShardingSpec((None, Shard(0))),
        ShardingSpec((None, Shard(1))),
        ShardingSpec((Shard(0), None)),
        ShardingSpec((None, Shard(0, outer=3))),
    ],
    ids=str,
)
def test_zero_shards_evenly_and_inside_a_devices_part(spec: ShardingSpec) -> None:
    whole, mesh = numbered(12, 4), (2, 2)
    placements = zero_placements(spec, whole.shape, mesh)
    parts = [placed(placements, whole, mesh, rank) for rank in range(4)]
    assert torch.equal(torch.cat([part.flatten() for part in parts]).sort().values, whole.flatten())
    for rank, part in enumerate(parts):
        assert set(part.flatten().tolist()) <= set(held(spec, whole, mesh, rank).flatten().tolist())


def test_parts_of_a_fused_projection_are_cut_alike() -> None:
    spec, whole = ShardingSpec((Shard(0, outer=3), Shard(0, outer=3))), numbered(12, 2)
    graph = captured(LLAMA, batch=BATCH)
    read = _placements(graph, spec)
    for rank in range(4):
        assert torch.equal(placed(read, whole, (2, 2), rank), held(spec, whole, (2, 2), rank))


def test_axes_that_cut_different_parts_are_refused() -> None:
    graph = captured(LLAMA, batch=BATCH)
    with pytest.raises(FailedPreconditionError, match="cut different parts of its dim 0"):
        _placements(graph, ShardingSpec((Shard(0), Shard(0, outer=3))))


def _placements(graph: Graph, spec: ShardingSpec) -> list[str]:
    given = stage(graph, data=2, tensor=2)
    name = given.parameters[1].parameter
    changed = replace(given, parameters=(ParameterSharding(parameter=name, spec=spec),))
    document = json.loads(dtensor_placements(plan_of(graph, [changed]), graph))
    found: list[str] = document["stages"][0]["parameters"][name]["placements"]
    return found
