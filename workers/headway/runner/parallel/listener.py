"""The other ranks' side of the line on which steps are announced."""

import torch
import torch.distributed as dist
from torch import Tensor

from headway.engine.batch import RunnerLostError
from headway.runner.parallel.fault import reason
from headway.runner.parallel.group import RankGroup
from headway.runner.step_message import FRAME_BYTES, StepKind, StepMessage, decode, rest_bytes


class Listener:
    """Is always ready to receive one message ahead, so that the leader's arrives in one trip.

    Attributes:
        group: that it listens in.
    """

    def __init__(self, group: RankGroup) -> None:
        assert group.control is not None, "a rank alone announces nothing to itself"
        self.group = group
        self._control = group.control
        self._frame, self._spare = (torch.zeros(FRAME_BYTES, dtype=torch.uint8) for _ in range(2))
        self._receive = self._begin(self._frame)

    def next(self) -> StepMessage:
        """Waits for the next message, as long as it takes; it is valid until the next call.

        Raises:
            RunnerLostError: the leader is gone.
        """
        try:
            self._receive.wait()
            rest = self._rest()
            message = decode(self._frame.numpy(), None if rest is None else rest.numpy())
            if message.kind is not StepKind.STOP:
                self._frame, self._spare = self._spare, self._frame
                self._receive = self._begin(self._frame)
        except RuntimeError as error:
            raise RunnerLostError(f"the leader is gone: {reason(error)}") from error
        return message

    def _rest(self) -> Tensor | None:
        num_bytes = rest_bytes(self._frame.numpy())
        if num_bytes == 0:
            return None
        rest = torch.empty(num_bytes, dtype=torch.uint8)
        self._begin(rest).wait()
        return rest

    def _begin(self, buffer: Tensor) -> dist.Work:
        work = dist.irecv(buffer, group=self._control, group_src=0)
        assert work is not None, "a rank is in its group"
        return work
