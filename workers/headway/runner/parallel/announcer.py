"""The leader's side of the line on which steps are announced."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from headway.engine.batch import RunnerLostError
from headway.runner.parallel.fault import reason
from headway.runner.step_message import FRAME_BYTES, StepKind, StepMessage, encode


class Announcer:
    """Sends each message to every other rank, without waiting for one that is still busy with the step before.

    Args:
        control: all ranks; this one is the first.
        num_in_flight: steps that may be announced before the first of them is done.
        timeout_s: for a rank to take a message.
    """

    def __init__(self, control: dist.ProcessGroup, *, num_in_flight: int = 1, timeout_s: float) -> None:
        self._control = control
        self._timeout = timedelta(seconds=timeout_s)
        # One is written while those in flight are being read.
        self._frames = [torch.zeros(FRAME_BYTES, dtype=torch.uint8) for _ in range(num_in_flight + 1)]
        # What is still on its way from each frame, and what of it did not fit in.
        self._sends: list[list[dist.Work]] = [[] for _ in self._frames]
        self._rests: list[list[Tensor]] = [[] for _ in self._frames]
        self._next = 0

    def announce(self, message: StepMessage) -> None:
        """Raises RunnerLostError if a rank is gone, or has not taken the message that lay in this one's frame."""
        slot, self._next = self._next, (self._next + 1) % len(self._frames)
        self._wait(slot)
        frame = self._frames[slot]
        rest = encode(message, frame.numpy())
        self._rests[slot] = [] if rest is None else [torch.from_numpy(rest)]
        parts = [frame, *self._rests[slot]]
        try:
            self._sends[slot] = [self._send(part, rank) for rank in range(1, self._control.size()) for part in parts]
        except RuntimeError as error:
            raise RunnerLostError(f"a step could not be announced: {reason(error)}") from error

    def stop(self) -> None:
        """Lets the other ranks go; returns when they have taken notice."""
        self.announce(StepMessage(StepKind.STOP))
        for slot in range(len(self._frames)):
            self._wait(slot)

    def _send(self, part: Tensor, rank: int) -> dist.Work:
        work = dist.isend(part, group=self._control, group_dst=rank)
        assert work is not None, "the leader is in its group"
        return work

    def _wait(self, slot: int) -> None:
        try:
            for work in self._sends[slot]:
                work.wait(self._timeout)
        except RuntimeError as error:
            raise RunnerLostError(f"a step was not taken: {reason(error)}") from error
        self._sends[slot] = []
