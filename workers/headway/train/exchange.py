"""What moves tensors between the ranks of a group."""

from typing import Protocol

import torch
import torch.distributed as dist


class Exchange(Protocol):
    """What a group of either does, of which torch's own types say less. NCCL ignores tags; compiled lists have what two
    ranks exchange in one order on both."""

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> dist.Work: ...
    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> dist.Work: ...
    def allreduce(self, tensors: list[torch.Tensor]) -> dist.Work: ...
    def alltoall_base(
        self, made: torch.Tensor, given: torch.Tensor, made_sizes: list[int], given_sizes: list[int]
    ) -> dist.Work: ...
    def shutdown(self) -> None: ...
