"""Decode attention over caches of several sizes, and the part of it that joins partial results."""

import numpy as np
import torch

from benchmarks.kernels.batch import HEAD_DIM, NUM_HEADS, NUM_KV_HEADS, Batch, PagedBatch
from benchmarks.kernels.stopwatch import Launch, median_us
from headway.kernels.cuda import DecodeRows, DecodeTable, decode_attention
from headway.kernels.cuda.operators import merge_partials

CTAS_PER_SM = 2


def decode_us(batch: Batch) -> tuple[float, float]:
    """Of a launch of decode attention with its merge, and of the merge alone."""
    paged, table = PagedBatch.of(batch), _table(batch)
    out = torch.empty_like(paged.q)

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

    whole_us = median_us([launch_on(*caches) for caches in paged.caches()])
    return whole_us, median_us([lambda: merge_partials(table.partials, table.starts, out, None)])


def _table(batch: Batch) -> DecodeTable:
    device = torch.device("cuda")
    table = DecodeTable.allocate(
        num_rows=len(batch.lengths),
        num_heads=NUM_HEADS,
        num_kv_heads=NUM_KV_HEADS,
        head_dim=HEAD_DIM,
        num_ctas=CTAS_PER_SM * torch.cuda.get_device_properties(device).multi_processor_count,
        device=device,
    )
    table.load(DecodeRows.of_lengths(np.array(batch.lengths, dtype=np.int32)))
    return table
