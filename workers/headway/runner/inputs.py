"""What the network needs to know about a step: small arrays, built from the scheduler's batch.

This is the message that a group's leader sends to its other ranks.
"""

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.engine.batch import StepBatch


@dataclass(frozen=True, slots=True)
class StepInput:
    """T tokens of B sequences, one after the other.

    Attributes:
        token_ids, positions: [T] int64.
        slot_mapping: [T] int64, block * block_size + offset where each token's key and value go.
        block_tables: [B, max_blocks] int32, padded with zeros.
        seq_lens: [B] int32, tokens of each sequence in the cache once the step is done.
        query_start: [B + 1] int32, first token of each sequence, then T.
        sampled_rows: [S] int64, the tokens whose logits give a next token: of each sequence that samples, its last
            known one and its drafts.
    """

    token_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    slot_mapping: NDArray[np.int64]
    block_tables: NDArray[np.int32]
    seq_lens: NDArray[np.int32]
    query_start: NDArray[np.int32]
    sampled_rows: NDArray[np.int64]


def build_step_input(batch: StepBatch, *, block_size: int) -> StepInput:
    """Flattens the batch; 64 decodes take about 0.1 ms."""
    token_ids, blocks = array("q"), array("i")
    starts, counts, num_sampled = array("q"), array("q"), array("q")
    for scheduled in batch.sequences:
        sequence, count = scheduled.sequence, scheduled.num_new_tokens
        start = sequence.num_computed_tokens
        token_ids.fromlist(sequence.token_ids[start : start + count])
        token_ids.extend(scheduled.draft_token_ids)
        blocks.fromlist(sequence.block_table[: -(-(start + count) // block_size)])
        starts.append(start)
        counts.append(count)
        num_sampled.append(1 + len(scheduled.draft_token_ids) if scheduled.samples else 0)
    first_positions, num_new = np.frombuffer(starts, np.int64), np.frombuffer(counts, np.int64)
    seq_lens = first_positions + num_new
    query_start = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(num_new, out=query_start[1:])
    block_tables = _pad_rows(np.frombuffer(blocks, np.int32), -(-seq_lens // block_size))
    # Token t of the batch stands at t - query_start of its sequence, plus what was computed before.
    positions = np.arange(query_start[-1]) + np.repeat(first_positions - query_start[:-1], num_new)
    owners = np.repeat(np.arange(len(starts)), num_new)
    slot_mapping = block_tables[owners, positions // block_size] * np.int64(block_size) + positions % block_size
    return StepInput(
        token_ids=np.frombuffer(token_ids, np.int64),
        positions=positions,
        slot_mapping=slot_mapping,
        block_tables=block_tables,
        seq_lens=seq_lens.astype(np.int32),
        query_start=query_start.astype(np.int32),
        sampled_rows=_last_rows(query_start[1:], np.frombuffer(num_sampled, np.int64)),
    )


def _last_rows(ends: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The last rows of each sequence, as many as `counts` says; `ends` are those behind them."""
    # Row r of the result stands at r - (rows of the sequences up to its own) before its sequence's end.
    return np.repeat(ends - np.cumsum(counts), counts) + np.arange(counts.sum())


def _pad_rows(flat: NDArray[np.int32], lengths: NDArray[np.int64]) -> NDArray[np.int32]:
    """Rows of the given lengths, laid out one after the other in `flat`, as a matrix padded with zeros."""
    width = int(lengths.max())
    rows = np.zeros((len(lengths), width), np.int32)
    rows[np.arange(width) < lengths[:, None]] = flat
    return rows
