"""The decode steps that attention is measured on, with the heads of Llama 3 8B."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK_SIZE = 32, 8, 128, 16
COLD_BYTES = 512 << 20  # of what launches take turns with: several times the L2 cache of any GPU
MAX_BUFFERS = 200


def num_cold_buffers(num_bytes: int) -> int:
    """Number of buffers of a size that launches take turns with, so that none is in the L2 cache."""
    return min(1 + COLD_BYTES // num_bytes, MAX_BUFFERS)


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences of a decode step; `num_bytes` of keys and values are read."""

    name: str
    lengths: tuple[int, ...]
    cache_dtype: torch.dtype = torch.bfloat16

    @property
    def num_bytes(self) -> int:
        return 2 * sum(self.lengths) * NUM_KV_HEADS * HEAD_DIM * self.cache_dtype.itemsize

    @property
    def num_buffers(self) -> int:
        """Number of caches that take turns."""
        return num_cold_buffers(self.num_bytes)


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """A batch whose keys lie in blocks in random order.

    Attributes:
        q: [rows, heads, head_dim] bfloat16.
        block_tables: [rows, max_blocks] int32.
    """

    batch: Batch
    q: Tensor
    block_tables: Tensor

    @classmethod
    def of(cls, batch: Batch) -> "PagedBatch":
        counts = [-(-length // BLOCK_SIZE) for length in batch.lengths]
        tables = torch.zeros(len(counts), max(counts), dtype=torch.int32)
        for row, numbers in enumerate(torch.split(torch.randperm(sum(counts)).int(), counts)):
            tables[row, : len(numbers)] = numbers
        q = torch.randn(len(counts), NUM_HEADS, HEAD_DIM, dtype=torch.bfloat16, device="cuda")
        return cls(batch, q, tables.cuda())

    def caches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Keys and values, [num_blocks, kv_heads, block_size, head_dim]: as many as do not fit into the L2 cache."""
        num_blocks = sum(-(-length // BLOCK_SIZE) for length in self.batch.lengths)
        shape = (2, num_blocks, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM)
        for _ in range(self.batch.num_buffers):
            keys, values = torch.randn(shape, dtype=torch.bfloat16, device="cuda").to(self.batch.cache_dtype)
            yield keys, values


BATCHES = (
    Batch("1 x 1K", (1024,)),
    Batch("1 x 4K", (4096,)),
    Batch("8 x 2K", (2048,) * 8),
    Batch("32 x 1K", (1024,) * 32),
    Batch("32 x 2K", (2048,) * 32),
    Batch("64 x 4K", (4096,) * 64),
    Batch("32 x 3K", (3040,) * 32),
    Batch("1 x 64K + 31 x 1K", (65536, *[1024] * 31)),
    Batch("32 x 2K, fp8", (2048,) * 32, torch.float8_e4m3fn),
    Batch("64 x 4K, fp8", (4096,) * 64, torch.float8_e4m3fn),
)
