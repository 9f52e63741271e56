"""Tensors between the leader and another rank, beside the messages that announce steps."""

from datetime import timedelta

import torch.distributed as dist
from torch import Tensor

from headway.engine.batch import RunnerLostError
from headway.runner.parallel.fault import reason
from headway.runner.parallel.group import RankGroup

_TAG = 1  # announcements have 0


class TensorChannel:
    """Sends and receives, in order, where both sides know what comes. CPU tensors; empty ones do not travel."""

    def __init__(self, group: RankGroup) -> None:
        assert group.control is not None, "a rank alone has nobody to send to"
        self._control = group.control
        self._timeout = timedelta(seconds=group.timeout_s)

    def send(self, x: Tensor, *, rank: int) -> None:
        """Raises RunnerLostError if the other rank is gone, or does not take it in time."""
        if x.numel():
            self._wait(dist.isend(x, group=self._control, group_dst=rank, tag=_TAG))

    def receive(self, x: Tensor, *, rank: int) -> Tensor:
        """Fills x; RunnerLostError if the other rank is gone, or does not send in time."""
        if x.numel():
            self._wait(dist.irecv(x, group=self._control, group_src=rank, tag=_TAG))
        return x

    def _wait(self, work: dist.Work | None) -> None:
        assert work is not None, "both ranks are in the group"
        try:
            work.wait(self._timeout)
        except RuntimeError as error:
            raise RunnerLostError(f"blocks could not be exchanged: {reason(error)}") from error
