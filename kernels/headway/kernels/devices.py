"""Chooses the set of kernels that serves a kind of device."""

from enum import Enum

import torch
from torch import Tensor


class KernelSet(Enum):
    """The sets of kernels. CPU: C++. CUDA: the kernels for GPUs. REFERENCE: torch, wherever nothing else serves."""

    CPU = "cpu"
    CUDA = "cuda"
    REFERENCE = "reference"


KERNEL_SETS = {"cpu": KernelSet.CPU, "cuda": KernelSet.CUDA}
"""By the type of device. The layout of keys, the dtypes that are computed with and the steps of a runner follow it."""


def kernel_set(device: torch.device) -> KernelSet:
    return KERNEL_SETS.get(device.type, KernelSet.REFERENCE)


def staged(values: Tensor, device: torch.device) -> Tensor:
    """Stages `values`, of the CPU, so that a copy to the device need not wait for them: beside a GPU in pinned
    memory."""
    return values.pin_memory() if device.type == "cuda" else values


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Starts to copy `values`, of the CPU, to the device."""
    return staged(values, device).to(device, non_blocking=True)
