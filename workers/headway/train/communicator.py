"""What ranks exchange tensors by: gloo between CPUs, and between ranks that share a GPU; NCCL between GPUs."""

from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist

from headway.core.errors import FailedPreconditionError
from headway.train.exchange import Exchange
from headway.train.host_staged import HostStaged


def backend(device: torch.device, *, is_shared: bool = False) -> str:
    """'nccl' for tensors on a GPU that no other rank of the gang computes on, else 'gloo'."""
    return "nccl" if device.type == "cuda" and not is_shared else "gloo"


def communicator(
    store: dist.Store, rank: int, size: int, *, device: torch.device, timeout: timedelta, is_shared: bool = False
) -> Exchange:
    """Args:
    store: this group's alone.
    device: of the tensors that are exchanged.
    is_shared: whether ranks of the gang have a GPU in common, through whose host's memory gloo exchanges them then.

    Raises:
        FailedPreconditionError: this process has no NCCL, or no GPU.
        RuntimeError: the others did not come in time.
    """
    if backend(device, is_shared=is_shared) == "gloo":
        group = cast("Exchange", dist.ProcessGroupGloo(store, rank, size, timeout))
        return HostStaged(group) if device.type == "cuda" else group
    if not (dist.is_nccl_available() and torch.cuda.is_available()):
        lacks = "torch finds no GPU" if dist.is_nccl_available() else f"torch {torch.__version__} has none"
        raise FailedPreconditionError(
            f"Tensors on {device} are exchanged by NCCL, and {lacks}.",
            hint="Install torch for CUDA on a machine with GPUs, or train on CPUs.",
            field="device",
        )
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout  # noqa: SLF001 - as torch's own init_process_group sets it
    return cast("Exchange", dist.ProcessGroupNCCL(store, rank, size, options))
