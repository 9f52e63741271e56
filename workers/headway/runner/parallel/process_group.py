"""Tensors over torch's collectives: gloo between CPUs, NCCL between GPUs."""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class ProcessGroup:
    """A transport over torch's collectives; implements `Transport`.

    Args:
        group: torch's process group, with a deadline of its own.
        ranks: the axis' ranks, numbered as in the whole group, in the order of the axis.
        rank: this rank's index among them.
    """

    def __init__(self, group: dist.ProcessGroup, *, ranks: Sequence[int], rank: int) -> None:
        self._group = group
        self._ranks = ranks
        self._rank = rank
        self._is_pair = len(ranks) == 2 and dist.get_backend(group) == dist.Backend.GLOO

    def all_reduce(self, x: Tensor) -> None:
        if not self._is_pair:
            dist.all_reduce(x, group=self._group)
            return
        # Between two ranks a swap moves as many bytes as a ring, in one trip instead of two.
        theirs = torch.empty_like(x)
        other = 1 - self._rank
        self._exchange([(other, x)], [(other, theirs)])
        x.add_(theirs)

    def gather(self, x: Tensor, outs: Sequence[Tensor]) -> None:  # noqa: ARG002
        self._exchange([], enumerate(outs))

    def give(self, x: Tensor, num_bytes: Sequence[int]) -> None:  # noqa: ARG002
        self._exchange([(0, x)], [])

    def all_gather(self, x: Tensor, outs: Sequence[Tensor]) -> None:
        self._exchange([(rank, x) for rank in range(len(outs))], enumerate(outs))

    def all_to_all(self, parts: Sequence[Tensor], outs: Sequence[Tensor]) -> None:
        self._exchange(enumerate(parts), enumerate(outs))

    def close(self) -> None:
        """The group ends with the process's others."""

    def _exchange(self, sent: Iterable[tuple[int, Tensor]], received: Iterable[tuple[int, Tensor]]) -> None:
        """Pairs (rank, tensor); what is empty or stays here does not travel."""
        works = [
            dist.P2POp(operation, tensor, self._ranks[rank], self._group)
            for operation, tensors in ((dist.isend, sent), (dist.irecv, received))
            for rank, tensor in tensors
            if rank != self._rank and tensor.numel() > 0
        ]
        for work in dist.batch_isend_irecv(works) if works else []:
            work.wait()
