"""The small arrays that the network needs for a step, derived from the model input of the scheduler's batch."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headway.core.parallel_config import Span
from headway.engine.batch import ScheduledSequence, StepBatch
from headway.runner.cache_shard import ShardView
from headway.runner.step_message import PENDING, ModelInput

Windows = frozenset[int | None]
"""The attention windows of a model's layers; None: everything is seen."""


@dataclass(frozen=True, slots=True)
class StepInput:
    """T tokens of B sequences, one after the other.

    Attributes:
        token_ids, positions: [T] int64.
        slot_mapping: [T] int64, block * block_size + offset where each token's key and value go; -1: to another shard.
        block_tables: [B, max_blocks] int32, padded with zeros.
        seq_lens: [B] int32, tokens of each sequence in the cache once the step is done; of a shard, those in it.
        query_start: [B + 1] int32, first token of each sequence, then T.
        key_spans: [T, 2] int32, the tokens of its sequence in this shard that each token sees, by window; empty where
            the cache is not split.
    """

    token_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    slot_mapping: NDArray[np.int64]
    block_tables: NDArray[np.int32]
    seq_lens: NDArray[np.int32]
    query_start: NDArray[np.int32]
    key_spans: Mapping[int | None, NDArray[np.int32]] = field(default_factory=dict)

    @property
    def num_decodes(self) -> int:
        """Sequences before the first that has several tokens."""
        has_several = np.diff(self.query_start) > 1
        return int(has_several.argmax()) if has_several.any() else len(has_several)

    @property
    def num_keys(self) -> int:
        """Keys in this shard that the tokens see together, on average over the windows."""
        spans = self.key_spans.values()
        return sum(int((span[:, 1] - span[:, 0]).sum()) for span in spans) // max(len(spans), 1)

    @classmethod
    def of(
        cls, model_input: ModelInput, *, block_size: int, blocks: Span | None = None, windows: Windows = frozenset()
    ) -> "StepInput":
        """
        Args:
            blocks: of this shard of the cache; None where it is not split.
            windows: for which `key_spans` are wanted.
        """
        first_positions, num_new = model_input.first_positions.astype(np.int64), model_input.counts.astype(np.int64)
        seq_lens = first_positions + num_new
        query_start = np.zeros(len(num_new) + 1, np.int64)
        np.cumsum(num_new, out=query_start[1:])
        block_tables = _pad_rows(model_input.blocks, -(-seq_lens // block_size))
        # Token t of the batch stands at t - query_start of its sequence, plus what was computed before.
        positions = np.arange(query_start[-1]) + np.repeat(first_positions - query_start[:-1], num_new)
        owners = np.repeat(np.arange(len(num_new)), num_new)
        key_spans: dict[int | None, NDArray[np.int32]] = {}
        if blocks is None:
            slot_mapping = block_tables[owners, positions // block_size] * np.int64(block_size) + positions % block_size
        else:
            view = ShardView(block_tables, -(-seq_lens // block_size), blocks=blocks, block_size=block_size)
            slot_mapping = view.slots(owners, positions)
            key_spans = {window: _key_spans(view, owners, positions, window) for window in windows}
            block_tables = view.block_tables()
            seq_lens = view.count_before(np.arange(len(seq_lens)), seq_lens)
        return cls(
            token_ids=model_input.token_ids.astype(np.int64),
            positions=positions,
            slot_mapping=slot_mapping,
            block_tables=block_tables,
            seq_lens=seq_lens.astype(np.int32),
            query_start=query_start.astype(np.int32),
            key_spans=key_spans,
        )


def flatten(batch: StepBatch, *, block_size: int, on_scratch: bool = False, finds_best: bool = False) -> ModelInput:
    """The batch as arrays; with `StepInput.of`, 64 decodes take about 0.1 ms.

    Args:
        finds_best: of scheduled sequences that want no more than best tokens, no logits are asked for.
    """
    token_ids, blocks, starts, counts = array("i"), array("i"), array("i"), array("i")
    sampled_rows, scored_rows, best_rows = array("i"), array("i"), array("i")
    end = 0
    for scheduled in batch.sequences:
        sequence, start, count = scheduled.sequence, scheduled.start, scheduled.num_new_tokens
        drafts = scheduled.draft_token_ids
        if sequence.sampling.num_prompt_logprobs is not None:
            scored_rows.extend(range(end, end + num_scored_tokens(scheduled)))
        token_ids.fromlist(sequence.token_ids[start : start + count] or [PENDING])
        if drafts:
            token_ids.extend(drafts)
        blocks += sequence.block_table[: -(-(start + count) // block_size)]
        starts.append(start)
        counts.append(count)
        end += count
        if scheduled.samples:
            rows = best_rows if finds_best and scheduled.wants_best else sampled_rows
            rows.extend(range(end - len(drafts) - 1, end))
    return ModelInput(
        token_ids=np.frombuffer(token_ids, np.int32),
        first_positions=np.frombuffer(starts, np.int32),
        counts=np.frombuffer(counts, np.int32),
        blocks=np.frombuffer(blocks, np.int32),
        sampled_rows=np.frombuffer(sampled_rows, np.int32),
        scored_rows=np.frombuffer(scored_rows, np.int32),
        on_scratch=on_scratch,
        best_rows=np.frombuffer(best_rows, np.int32),
    )


def num_scored_tokens(scheduled: ScheduledSequence) -> int:
    """Returns how many of the scheduled sequence's tokens, from the first, precede prompt tokens whose log
    probabilities are asked for.
    """
    sequence = scheduled.sequence
    if sequence.sampling.num_prompt_logprobs is None:
        return 0
    return max(0, min(scheduled.num_new_tokens, sequence.num_prompt_tokens - 1 - scheduled.start))


def _key_spans(
    view: ShardView, owners: NDArray[np.int64], positions: NDArray[np.int64], window: int | None
) -> NDArray[np.int32]:
    """Returns the key spans of the tokens at `positions` in the shard, int32 [tokens, 2]: each sees the keys up to
    itself, and no further back than its window.
    """
    ends = view.count_before(owners, positions + 1)
    oldest = np.zeros_like(positions) if window is None else np.maximum(positions + 1 - window, 0)
    return np.stack((view.count_before(owners, oldest), ends), axis=1).astype(np.int32)


def _pad_rows(flat: NDArray[np.int32], lengths: NDArray[np.int64]) -> NDArray[np.int32]:
    """Rows of the given lengths, laid out one after the other in `flat`, as a matrix padded with zeros."""
    width = int(lengths.max())
    rows = np.zeros((len(lengths), width), np.int32)
    rows[np.arange(width) < lengths[:, None]] = flat
    return rows
