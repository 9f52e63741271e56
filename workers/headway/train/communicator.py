"""What ranks exchange tensors by: gloo between CPUs, NCCL between GPUs. The one place that knows the difference."""

from datetime import timedelta
from typing import Protocol, cast

import torch
import torch.distributed as dist

from headway.core.errors import FailedPreconditionError


class Communicator(Protocol):
    """What a group of either does, of which torch's own types say less. NCCL ignores tags; compiled lists have what two
    ranks exchange in one order on both."""

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> dist.Work: ...
    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> dist.Work: ...
    def allreduce(self, tensors: list[torch.Tensor]) -> dist.Work: ...
    def alltoall_base(
        self, made: torch.Tensor, given: torch.Tensor, made_sizes: list[int], given_sizes: list[int]
    ) -> dist.Work: ...
    def shutdown(self) -> None: ...


def backend(device: torch.device) -> str:
    """'nccl' for tensors on a GPU, else 'gloo'."""
    return "nccl" if device.type == "cuda" else "gloo"


def communicator(store: dist.Store, rank: int, size: int, *, device: torch.device, timeout: timedelta) -> Communicator:
    """Args:
    store: this group's alone.
    device: of the tensors that are exchanged.

    Raises:
        FailedPreconditionError: this process has no NCCL, or no GPU.
        RuntimeError: the others did not come in time.
    """
    if backend(device) == "gloo":
        return cast("Communicator", dist.ProcessGroupGloo(store, rank, size, timeout))
    if not (dist.is_nccl_available() and torch.cuda.is_available()):
        lacks = "torch finds no GPU" if dist.is_nccl_available() else f"torch {torch.__version__} has none"
        raise FailedPreconditionError(
            f"Tensors on {device} are exchanged by NCCL, and {lacks}.",
            hint="Install torch for CUDA on a machine with GPUs, or train on CPUs.",
            field="device",
        )
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout  # noqa: SLF001 - as torch's own init_process_group sets it
    return cast("Communicator", dist.ProcessGroupNCCL(store, rank, size, options))
