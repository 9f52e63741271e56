"""Decode steps as captured graphs, one for each of some batch sizes: a step is padded to the next of them."""

import bisect
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from headway.models.attention import AttentionContext
from headway.runner.decode_plans import DecodePlans
from headway.runner.future_tokens import FutureTokens
from headway.runner.inputs import StepInput
from headway.runner.replays import Replayed
from headway.runner.step_buffers import StepBuffers
from headway.runner.step_message import ModelInput

log = logging.getLogger(__name__)

_SMALL_SIZES = (1, 2, 4)
_SIZE_STEP = 8


def graph_sizes(max_num_rows: int) -> list[int]:
    """1, 2, 4, 8, then every eighth, up to the largest batch, which is one of them."""
    sizes = {*_SMALL_SIZES, *range(_SIZE_STEP, max_num_rows, _SIZE_STEP), max_num_rows}
    return sorted(size for size in sizes if size <= max_num_rows)


class CudaGraph(Protocol):
    """Records what a function starts on a device. It reads and writes tensors that stay where they are."""

    def __call__(self, compute: Callable[[], None]) -> Callable[[], None]:
        """Returns what does the same again on what those tensors then hold."""

    @property
    def used_bytes(self) -> int:
        """The bytes of the device's memory that are used now."""


class StepGraphs:
    """Captures decode steps as CUDA graphs and replays them.

    Args:
        plans: decode plans for as many rows as a batch has at most.
        hidden: the tensor where steps leave their hidden states, [max rows, width].
        compute: computes a step: token ids [n] -> hidden states [n, width].
        block_size: tokens per block of the cache.
        num_rows: the number of rows of the only steps that are captured; None for steps of any size.
    """

    def __init__(
        self,
        buffers: StepBuffers,
        *,
        plans: DecodePlans,
        hidden: Tensor,
        compute: Callable[[Tensor, AttentionContext], Tensor],
        capture: CudaGraph,
        block_size: int,
        num_rows: int | None = None,
    ) -> None:
        self._buffers = buffers
        self._block_size = block_size
        self._hidden = hidden
        self._compute = compute
        sizes = graph_sizes(plans.max_num_rows)
        self._sizes = sizes if num_rows is None else sizes[bisect.bisect_left(sizes, num_rows) :][:1]
        self._plans = {size: plans.first(size) for size in self._sizes}
        started_s, before_bytes = time.perf_counter(), capture.used_bytes
        # The largest first: the memory that it takes is enough for each of the others.
        self._replays = {size: capture(partial(self._run, size)) for size in reversed(self._sizes)}
        log.info(
            "captured %d graphs of decode steps, up to %d sequences, in %.1f s and %.0f MB",
            len(self._sizes),
            max(self._sizes, default=0),
            time.perf_counter() - started_s,
            (capture.used_bytes - before_bytes) / 1e6,
        )

    @torch.inference_mode()
    def replay(self, model_input: ModelInput, *, future: FutureTokens | None = None) -> Replayed | None:
        """Replays a step if it can be; see `headway.runner.replays.Replays`."""
        if not model_input.is_decode:
            return None
        step = StepInput.of(model_input, block_size=self._block_size)
        if not self._buffers.has_room(step):
            return None
        num_rows = len(step.token_ids)
        place = bisect.bisect_left(self._sizes, num_rows)
        if place == len(self._sizes):
            return None
        size = self._sizes[place]
        self._buffers.load(step, num_rows=size)
        if future is not None:
            future.fill(self._buffers.token_ids)
        self._plans[size].load(step, num_decodes=num_rows)
        self._replays[size]()
        return Replayed(self._hidden[:num_rows])

    def _run(self, size: int) -> None:
        buffers = self._buffers
        context = buffers.planned_context(size, tables=self._plans[size].tables)
        self._hidden[:size].copy_(self._compute(buffers.token_ids[:size], context))
