"""The memory that PyTorch's MemTracker sees on one device while a model is trained, without any values."""

from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.planner.layout import COLUMN_WISE, ROW_WISE, Layout
from headway.core.precision import Precision
from headway.profiler.zoo.model import ZooModel
from headway.profiler.zoo.network import make_network
from headway.profiler.zoo.registry import find

_MICRO_BATCHES = 2
_ITERATIONS = 2  # the first one makes the optimizer's state


def tracked_bytes(model: str, layout: Layout, *, seq: int | None = None) -> int:
    """The most bytes that the first device holds in an iteration of two micro-batches.

    Args:
        model: of the zoo, as a list of blocks.
    """
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=layout.num_devices)
    try:
        mesh = init_device_mesh("cpu", (layout.data, layout.tensor), mesh_dim_names=("data", "tensor"))
        module = make_network(find(model)).train()
        with FakeTensorMode():
            return _train(module, find(model), layout, mesh, seq=seq)
    finally:
        distributed.destroy_process_group()


def _train(module: nn.Module, known: ZooModel, layout: Layout, mesh: DeviceMesh, *, seq: int | None) -> int:
    local = layout.micro_batch // layout.data
    inputs = [_on_device(each) for each in known.example_inputs(batch=local, seq=seq)]
    targets = known.example_targets(batch=local, seq=seq)
    module = _parallelize(_without_values(module), layout, mesh)
    optimizer = torch.optim.Adam(module.parameters(), foreach=False)
    tracker = FSDPMemTracker(module, optimizer) if layout.is_fully_sharded else MemTracker()
    if isinstance(tracker, FSDPMemTracker):
        tracker.track_inputs(tuple(inputs))
    else:
        tracker.track_external(module, optimizer, *inputs)
    with tracker:
        for _ in range(_ITERATIONS):
            for _ in range(_MICRO_BATCHES):
                tracker.reset_mod_stats()
                loss = _loss(module(*inputs), None if targets is None else _on_device(targets))
                loss.backward()  # type: ignore[no-untyped-call]
                del loss
            optimizer.step()
            optimizer.zero_grad()
    peak = tracker.get_tracker_snapshot("peak")
    return max(int(kinds["Total"]) for kinds in peak.values())


def _without_values(module: nn.Module) -> nn.Module:
    """Brings a module from the meta device to one that memory is counted of; shared parameters stay shared."""
    found: dict[nn.Parameter, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            given = found.setdefault(parameter, nn.Parameter(_on_device(parameter)))
            part.register_parameter(name, given)
        for name, buffer in part.named_buffers(recurse=False):
            part.register_buffer(name, _on_device(buffer))
    return module


def _on_device(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def _loss(outputs: Any, targets: Tensor | None) -> Tensor:
    """As capture has it."""
    scores = outputs if isinstance(outputs, Tensor) else outputs[0]
    if targets is None:
        return scores.sum()
    return functional.cross_entropy(scores.flatten(0, -2).float(), targets.flatten())


def _parallelize(module: nn.Module, layout: Layout, mesh: DeviceMesh) -> nn.Module:
    blocks = module.get_submodule("layers") if hasattr(module, "layers") else nn.ModuleList()
    assert isinstance(blocks, nn.ModuleList)
    if layout.tensor > 1:
        for block in blocks:
            _split_block(block, mesh["tensor"])
    if layout.recomputes:
        for number, block in enumerate(blocks):
            blocks[number] = checkpoint_wrapper(block)
    if layout.is_fully_sharded:
        is_half = layout.precision is not Precision.FLOAT32
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if is_half else None, reduce_dtype=torch.float32)
        for block in blocks:
            fully_shard(block, mesh=mesh["data"], mp_policy=policy, reshard_after_forward=layout.zero_stage == 3)
        fully_shard(module, mesh=mesh["data"], mp_policy=policy, reshard_after_forward=False)
    return module


def _split_block(block: nn.Module, mesh: DeviceMesh) -> None:
    """As Megatron-LM does: the first matrices of attention and MLP by columns, their last ones by rows."""
    plan: dict[str, ParallelStyle] = {}
    for name, part in block.named_modules():
        kind = name.rpartition(".")[2]
        if isinstance(part, nn.Linear) and kind in COLUMN_WISE:
            plan[name] = ColwiseParallel()
        elif isinstance(part, nn.Linear) and kind in ROW_WISE:
            plan[name] = RowwiseParallel()
    parallelize_module(block, mesh, plan)
