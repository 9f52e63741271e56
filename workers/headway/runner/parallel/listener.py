"""The other ranks' side of the line on which steps are announced."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from headway.engine.batch import RunnerLostError
from headway.runner.parallel.fault import reason
from headway.runner.parallel.group import RankGroup
from headway.runner.step_message import FRAME_BYTES, StepKind, StepMessage, decode, rest_bytes


class Listener:
    """Is always ready to receive one message ahead, so that the leader's arrives in one trip.

    A message is valid while the steps that were announced before it are in flight. Each of them is followed by two
    messages at most before it ends: that of its head, and a new step.

    Attributes:
        group: that it listens in.

    Raises:
        RunnerLostError: the leader is gone.
    """

    def __init__(self, group: RankGroup) -> None:
        assert group.control is not None, "a rank alone announces nothing to itself"
        self.group = group
        self._control = group.control
        self._frames = deque(torch.zeros(FRAME_BYTES, dtype=torch.uint8) for _ in range(2 * group.parallel.pp))
        with _losing_the_leader():
            self._receive = self._begin(self._frames[0])

    def next(self) -> StepMessage:
        """Waits for the next message, as long as it takes.

        Raises:
            RunnerLostError: the leader is gone.
        """
        with _losing_the_leader():
            self._receive.wait()
            rest = self._rest()
            message = decode(self._frames[0].numpy(), None if rest is None else rest.numpy())
            if message.kind is not StepKind.STOP:
                self._frames.rotate(-1)
                self._receive = self._begin(self._frames[0])
        return message

    def _rest(self) -> Tensor | None:
        num_bytes = rest_bytes(self._frames[0].numpy())
        if num_bytes == 0:
            return None
        rest = torch.empty(num_bytes, dtype=torch.uint8)
        self._begin(rest).wait()
        return rest

    def _begin(self, buffer: Tensor) -> dist.Work:
        work = dist.irecv(buffer, group=self._control, group_src=0)
        assert work is not None, "a rank is in its group"
        return work


@contextmanager
def _losing_the_leader() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise RunnerLostError(f"the leader is gone: {reason(error)}") from error
