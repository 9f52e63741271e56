"""Exchanges tensors on GPUs through the host's memory by a group of CPUs: NCCL refuses ranks that share a GPU."""

from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist

from headway.train.exchange import Exchange


class HostStaged:
    """What leaves a GPU is copied to pinned memory first, for which the host waits; what arrives is copied behind the
    work that its stream has. See `Exchange`.

    Args:
        group: of CPUs.
    """

    def __init__(self, group: Exchange) -> None:
        self._group = group

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> dist.Work:
        given = [_on_host(each) for each in tensors]
        return _staged(self._group.send(given, peer, tag), given)

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> dist.Work:
        rooms = [_room(each) for each in tensors]
        return _staged(self._group.recv(rooms, peer, tag), rooms, tensors)

    def allreduce(self, tensors: list[torch.Tensor]) -> dist.Work:
        summed = [_on_host(each) for each in tensors]
        return _staged(self._group.allreduce(summed), summed, tensors)

    def alltoall_base(
        self, made: torch.Tensor, given: torch.Tensor, made_sizes: list[int], given_sizes: list[int]
    ) -> dist.Work:
        room, own = _room(made), _on_host(given)
        return _staged(self._group.alltoall_base(room, own, made_sizes, given_sizes), [room, own], [made])

    def shutdown(self) -> None:
        self._group.shutdown()


class _Work:
    """Keeps what travels until it has, and takes what came to where it belongs."""

    def __init__(self, work: dist.Work, travelling: Sequence[torch.Tensor], arriving: Sequence[torch.Tensor]) -> None:
        self._work, self._travelling, self._arriving = work, travelling, arriving

    def wait(self, timeout: timedelta) -> bool:
        self._work.wait(timeout)
        for target, came in zip(self._arriving, self._travelling, strict=False):  # what only leaves is behind these
            target.copy_(came, non_blocking=True)
        self._travelling = ()
        return True


def _staged(work: dist.Work, travelling: Sequence[torch.Tensor], arriving: Sequence[torch.Tensor] = ()) -> dist.Work:
    return cast("dist.Work", _Work(work, travelling, arriving))


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    room = _room(tensor)
    room.copy_(tensor, non_blocking=True)
    if tensor.is_cuda:
        copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # the other rank needs this core
        copied.record(torch.cuda.current_stream(tensor.device))
        copied.synchronize()
    return room


def _room(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
