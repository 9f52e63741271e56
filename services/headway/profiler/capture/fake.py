"""Tensors that have a shape, a dtype and no storage, so that a model of any size can be traced."""

from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree


def empty_mode() -> FakeTensorMode:
    return FakeTensorMode(allow_non_fake_inputs=True)


def forget_values(module: nn.Module, mode: FakeTensorMode) -> None:
    """Replaces all parameters and buffers by fake ones on the CPU; those that were shared are shared still."""
    known: dict[torch.Tensor, torch.Tensor] = {}
    for child in module.modules():
        for registry in (child._parameters, child._buffers):  # noqa: SLF001 - setattr would refuse some of them
            for name, tensor in registry.items():
                if tensor is not None:
                    if tensor not in known:
                        known[tensor] = _fake(tensor, mode)
                    registry[name] = known[tensor]  # type: ignore[assignment]


def fake_inputs(inputs: Any, mode: FakeTensorMode) -> Any:
    """Copies a tree of inputs with fake tensors on the CPU in the place of all tensors."""
    return pytree.tree_map_only(torch.Tensor, lambda tensor: _fake(tensor, mode), inputs)


def _fake(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    if isinstance(tensor, FakeTensor) and tensor.fake_mode is mode:
        return tensor
    with mode:
        empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty
