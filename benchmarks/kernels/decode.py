"""Decode attention over caches of several sizes, and the part of it that joins partial results."""

import numpy as np
import torch

from benchmarks.kernels.batch import HEAD_DIM, NUM_HEADS, Batch, PagedBatch
from benchmarks.kernels.stopwatch import Launch, median_us
from headway.kernels.cuda import DecodeRows, DecodeTable, decode_attention, decode_slots
from headway.kernels.cuda.operators import merge_partials


def decode_us(batch: Batch) -> tuple[float, float]:
    """Of a launch of decode attention with its merge, and of the merge alone."""
    paged = PagedBatch.of(batch)
    caches = list(paged.caches())
    table, out = _table(paged, caches[0][0]), torch.empty_like(paged.q)

    def launch_on(k_cache: torch.Tensor, v_cache: torch.Tensor) -> Launch:
        return lambda: decode_attention(
            paged.q,
            k_cache=k_cache,
            v_cache=v_cache,
            block_tables=paged.block_tables,
            table=table,
            scale=HEAD_DIM**-0.5,
            out=out,
        )

    whole_us = median_us([launch_on(*pair) for pair in caches])
    return whole_us, median_us([lambda: merge_partials(table.partials, table.starts, out, None)])


def _table(paged: PagedBatch, k_cache: torch.Tensor) -> DecodeTable:
    table = DecodeTable.allocate(
        num_rows=len(paged.batch.lengths),
        num_heads=NUM_HEADS,
        head_dim=HEAD_DIM,
        num_slots=decode_slots(paged.q, k_cache=k_cache),
        device=paged.q.device,
    )
    table.load(DecodeRows.of_lengths(np.array(paged.batch.lengths, dtype=np.int32)))
    return table
