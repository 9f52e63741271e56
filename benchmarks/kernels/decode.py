"""Times decode attention over caches of several sizes, and the merge of partial results, of one device and of
several."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from benchmarks.kernels.batch import (
    BATCHES,
    HEAD_DIM,
    NUM_HEADS,
    Batch,
    PagedBatch,
    num_cold_buffers,
)
from benchmarks.kernels.stopwatch import Launch, median_us
from benchmarks.kernels.timings import DecodeTiming, MergeTiming
from headway.kernels.cuda import DecodeRows, DecodeTable, decode_attention, decode_slots
from headway.kernels.cuda import merge_partials as merge_shards
from headway.kernels.cuda.operators import merge_partials

NUM_SHARDS = (2, 8)
MERGED = ("32 x 2K", "64 x 4K")  # a shard's part of larger batches


def decode_timings() -> Iterator[DecodeTiming]:
    for batch in BATCHES:
        us, merge_us = _decode_us(batch)
        yield DecodeTiming(batch.name, batch.num_bytes, us=us, merge_us=merge_us)


def merge_timings(decodes: Sequence[DecodeTiming]) -> Iterator[MergeTiming]:
    """Times the merge of what several devices made of a shard of the cache each: a shard is as large as a batch of
    `decodes`."""
    attention_us = {timing.batch: timing.us for timing in decodes}
    for batch in BATCHES:
        if batch.name in MERGED:
            for num_shards in NUM_SHARDS:
                us = _shards_us(num_shards, num_rows=len(batch.lengths))
                yield MergeTiming(f"{num_shards} x {batch.name}", us=us, attention_us=attention_us[batch.name])


def _shards_us(num_shards: int, *, num_rows: int) -> float:
    shape = (num_shards, num_rows, NUM_HEADS, HEAD_DIM + 1)
    num_buffers = num_cold_buffers(4 * math.prod(shape))

    def launch_on(partials: torch.Tensor) -> Launch:
        return lambda: merge_shards(partials, dtype=torch.bfloat16)

    return median_us([launch_on(torch.randn(shape, device="cuda")) for _ in range(num_buffers)])


def _decode_us(batch: Batch) -> tuple[float, float]:
    """Times a launch of decode attention with its merge, and the merge alone, whose input lies in the L2 cache."""
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
