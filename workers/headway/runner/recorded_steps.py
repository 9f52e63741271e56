"""Decode steps on the CPU as recordings of their kernels, one for each number of sequences."""

import logging
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from headway import kernels
from headway.models.attention import AttentionContext
from headway.runner.broken_rows import without_broken
from headway.runner.future_tokens import FutureTokens
from headway.runner.replays import Replayed
from headway.runner.step_buffers import StepBuffers
from headway.runner.step_message import ModelInput

log = logging.getLogger(__name__)

_HIDDEN, _BEST = 0, 1  # the parts of a recording


class RecordedSteps:
    """Replays decode steps. One is recorded when as many sequences decode for the first time.

    Args:
        compute: what a step computes, [n] token ids -> [n, width]. If that is not the kernels' work alone, such as a
            layer norm or a mixture of experts, none is recorded.
        find_largest: the largest logits behind what it computes, [n, width] -> [n], and their tokens, [n] int64.
        block_size: of the cache.
    """

    def __init__(
        self,
        buffers: StepBuffers,
        *,
        compute: Callable[[Tensor, AttentionContext], Tensor],
        find_largest: Callable[[Tensor], tuple[Tensor, Tensor]],
        block_size: int,
    ) -> None:
        self._buffers = buffers
        self._inputs = buffers.inputs
        self._compute = compute
        self._find_largest = find_largest
        self._block_size = block_size
        self._arena = kernels.Arena()
        self._recordings: dict[tuple[int, int], kernels.Recording] = {}
        self._can_record = True

    def replay(self, model_input: ModelInput, *, future: FutureTokens | None = None) -> Replayed | None:
        """See `headway.runner.replays.Replays`; the best tokens are there if nothing else is wanted of any sequence."""
        if not self._can_record or not model_input.is_decode:
            return None
        if not self._inputs.load(
            model_input.token_ids, model_input.first_positions, model_input.blocks, block_size=self._block_size
        ):
            return None
        recording = self._recording(len(model_input.token_ids))
        if recording is None:
            return None
        if future is not None:
            future.fill(self._buffers.token_ids)
        wants_best = len(model_input.best_rows) == len(model_input.token_ids)
        recording.run(_BEST + wants_best)
        results = recording.results
        if not wants_best:
            return Replayed(results[_HIDDEN])
        largest, token_ids = results[_BEST]
        return Replayed(results[_HIDDEN], without_broken(token_ids, largest))

    def _recording(self, num_rows: int) -> kernels.Recording | None:
        key = num_rows, torch.get_num_threads()
        if key not in self._recordings:
            try:
                self._recordings[key] = self._record(num_rows)
            except kernels.UnrecordedOperatorError as error:
                # Whoever keeps log records would keep the error's frames too, and with them the model.
                log.info("steps are not recorded: %s", str(error))
                self._can_record = False
                return None
        return self._recordings[key]

    @torch.inference_mode()
    def _record(self, num_rows: int) -> kernels.Recording:
        return kernels.record(partial(self._run, num_rows), self._find_largest, arena=self._arena)

    def _run(self, num_rows: int) -> Tensor:
        return self._compute(self._buffers.token_ids[:num_rows], self._buffers.context(num_rows))
