"""Decode steps on the CPU as recordings of their kernels, one for each number of sequences."""

import logging
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from headway import kernels
from headway.models.attention import AttentionContext
from headway.runner.carried_tokens import CarriedTokens
from headway.runner.inputs import StepInput
from headway.runner.step_buffers import StepBuffers
from headway.runner.step_graphs import is_decode

log = logging.getLogger(__name__)


class RecordedSteps:
    """Replays decode steps. One is recorded when as many sequences decode for the first time.

    Args:
        compute: what a step computes, [n] token ids -> [n, width]. If that is not the kernels' work alone, such as a
            layer norm or a mixture of experts, none is recorded.
    """

    def __init__(self, buffers: StepBuffers, *, compute: Callable[[Tensor, AttentionContext], Tensor]) -> None:
        self._buffers = buffers
        self._compute = compute
        self._arena = kernels.Arena()
        self._recordings: dict[tuple[int, int], kernels.Recording] = {}
        self._can_record = True

    def replay(self, step: StepInput, *, carried: CarriedTokens | None = None) -> Tensor | None:
        """See `headway.runner.step_graphs.Replays`."""
        if not self._can_record or not self._buffers.has_room(step) or not is_decode(step):
            return None
        recording = self._recording(len(step.token_ids))
        if recording is None:
            return None
        self._buffers.load(step, num_rows=len(step.token_ids))
        self._buffers.load_lengths(step)
        if carried is not None:
            carried.fill(self._buffers.token_ids)
        recording.run()
        return recording.result

    def _recording(self, num_rows: int) -> kernels.Recording | None:
        key = num_rows, torch.get_num_threads()
        if key not in self._recordings:
            try:
                self._recordings[key] = kernels.record(partial(self._run, num_rows), arena=self._arena)
            except kernels.UnrecordedOperatorError as error:
                log.info("steps are not recorded: %s", error)
                self._can_record = False
                return None
        return self._recordings[key]

    def _run(self, num_rows: int) -> Tensor:
        return self._compute(self._buffers.token_ids[:num_rows], self._buffers.context(num_rows))
