"""Takes steps through the layers that a rank has."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.model import ModelSpec
from headway.core.parallel_config import Span
from headway.core.shard import ModelShard
from headway.kernels import KernelSet, kernel_set, to_device
from headway.models.attention import AttentionContext, Decodes, LayerCache
from headway.models.model import DTYPES, Model
from headway.runner.decode_plans import DecodePlans
from headway.runner.future_tokens import FutureTokens
from headway.runner.inputs import StepInput, Windows
from headway.runner.recorded_steps import RecordedSteps
from headway.runner.replays import Replays
from headway.runner.step_buffers import StepBuffers
from headway.runner.step_graphs import CudaGraph, StepGraphs


class Forward:
    """Runs a network on its device. On a GPU a step's decodes are planned apart from its prefill chunks.

    Args:
        max_num_seqs: the most decodes that are planned or recorded; more go with the chunks.
    """

    def __init__(
        self,
        model: Model,
        *,
        spec: ModelSpec,
        shard: ModelShard,
        windows: Windows,
        max_num_seqs: int,
        device: torch.device,
    ) -> None:
        self._model = model
        self._spec = spec
        self._device = device
        self._max_num_seqs = max_num_seqs
        self._plans: DecodePlans | None = None
        if kernel_set(device) is KernelSet.CUDA:
            self._plans = DecodePlans.allocate(
                spec, shard=shard, windows=windows, max_num_rows=max_num_seqs, device=device
            )

    @torch.inference_mode()
    def capture(
        self,
        layers: Sequence[LayerCache],
        capture: CudaGraph,
        *,
        block_size: int,
        max_num_blocks: int,
        num_rows: int | None = None,
    ) -> Replays:
        """Decode steps over a cache as graphs; of a whole model, on a GPU.

        Args:
            max_num_blocks: of a sequence.
            num_rows: of the only steps that are captured; None for steps of any size.
        """
        assert self._plans is not None, "decodes are planned where they are captured"
        max_num_rows = self._plans.max_num_rows
        width, dtype = self._spec.embedding_dim or self._spec.hidden_size, DTYPES[self._spec.dtype]
        buffers = StepBuffers(max_num_rows=max_num_rows, max_num_blocks=max_num_blocks, device=self._device)
        return StepGraphs(
            buffers,
            plans=self._plans,
            hidden=torch.zeros((max_num_rows, width), dtype=dtype, device=self._device),
            compute=lambda token_ids, context: self._model.forward(token_ids, context, layers),
            capture=capture,
            block_size=block_size,
            num_rows=num_rows,
        )

    def record(self, layers: Sequence[LayerCache], *, block_size: int, max_num_blocks: int) -> Replays:
        """Decode steps over a cache as recordings; of a whole model, on the CPU.

        Args:
            max_num_blocks: of a sequence.
        """
        buffers = StepBuffers(max_num_rows=self._max_num_seqs, max_num_blocks=max_num_blocks, device=self._device)
        return RecordedSteps(
            buffers,
            compute=lambda token_ids, context: self._model.forward(token_ids, context, layers),
            find_largest=self._find_largest,
            block_size=block_size,
        )

    def run(
        self,
        step: StepInput,
        layers: Sequence[LayerCache],
        *,
        own: Span,
        entering: Tensor | None = None,
        rows: NDArray[np.int64] | None = None,
        future: FutureTokens | None = None,
    ) -> Tensor:
        """Runs the network on a step; see `Model.forward`.

        Args:
            own: rows that this rank computes outside attention; `rows` count from its start.
            future: the tokens that are still on the device, for a step of which this rank computes all rows.
        """
        token_ids = self._tensor(step.token_ids[own.as_slice()])
        if future is not None:
            future.fill(token_ids)
        return self._model.forward(
            token_ids,
            self._context(step, own),
            layers,
            entering=entering,
            rows=None if rows is None else self._tensor(rows),
        )

    def _find_largest(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        largest = self._model.largest_logits(hidden)
        assert largest is not None, "a whole model has the whole head"
        return largest

    def _context(self, step: StepInput, own: Span) -> AttentionContext:
        positions = self._tensor(step.positions)
        decodes = self._decodes(step)
        count = 0 if decodes is None else decodes.count  # of sequences, and of tokens
        return AttentionContext(
            positions=positions,
            slot_mapping=self._tensor(step.slot_mapping),
            block_tables=self._tensor(step.block_tables[count:]),
            seq_lens=self._tensor(step.seq_lens[count:]),
            query_start=self._tensor(step.query_start[count:] - np.int32(count)),
            own_positions=positions[own.as_slice()],
            key_spans={window: self._tensor(spans[count:]) for window, spans in step.key_spans.items()},
            decodes=decodes,
        )

    def _decodes(self, step: StepInput) -> Decodes | None:
        count = 0 if self._plans is None else min(step.num_decodes, self._plans.max_num_rows)
        if self._plans is None or count == 0:
            return None
        plans = self._plans.first(count)
        plans.load(step, num_decodes=count)
        return Decodes(count, self._tensor(step.block_tables[:count]), plans.tables)

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        """Starts to copy an array to the device and returns the tensor there."""
        return to_device(torch.from_numpy(values), self._device)
