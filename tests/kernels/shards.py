"""A step's sequences, their blocks spread over the shards of a cache in any way, and their attention by brute force."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class Shape:
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    block_size: int = 16
    dtype: torch.dtype = torch.float32
    cache_dtype: torch.dtype = torch.float32

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.head_dim)


def brute_force(q: Tensor, k: Tensor, v: Tensor, *, visible: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """q [queries, heads, head_dim], k, v [keys, kv_heads, head_dim], visible [queries, keys] -> out, lse in float64."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float64)
    group_size = q.shape[1] // k.shape[1]
    for head in range(q.shape[1]):
        keys, values = k[:, head // group_size].double(), v[:, head // group_size].double()
        weights = torch.exp(q[:, head].double() @ keys.T * scale) * visible
        sums = weights.sum(dim=1)
        sees = sums > 0
        out[sees, head] = (weights[sees] @ values) / sums[sees, None]
        lse[sees, head] = sums[sees].log()
    return out, lse


class ShardedSequence:
    """Keys and values of one context, random, and the shard of each of its blocks."""

    def __init__(self, shape: Shape, context_len: int, owners: Sequence[int]) -> None:
        self.shape = shape
        self.k, self.v = (
            torch.randn(context_len, shape.num_kv_heads, shape.head_dim).to(shape.cache_dtype) for _ in range(2)
        )
        self.owners = torch.tensor(owners, dtype=torch.long)

    def positions(self, shard: int) -> Tensor:
        """The context positions of the shard's keys, in order."""
        positions = torch.arange(len(self.k))
        return positions[self.owners[positions // self.shape.block_size] == shard]


@dataclass
class ShardedCache:
    """One shard of the cache: blocks lie scattered in it, and what no token was written to holds NaN."""

    shape: Shape
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    def add(self, k: Tensor, v: Tensor) -> None:
        """A sequence's keys and values here, in order."""
        self.keys.append(k)
        self.values.append(v)

    def operands(self) -> dict[str, Any]:
        num_blocks = [-(-len(k) // self.shape.block_size) for k in self.keys]
        places = torch.randperm(sum(num_blocks) + 2)
        tables = torch.full((len(num_blocks), max(num_blocks)), -1, dtype=torch.int32)
        for row, blocks in zip(tables, places[: sum(num_blocks)].split(num_blocks), strict=True):
            row[: len(blocks)] = blocks
        return {
            "k_cache": self._scattered(self.keys, places).mT.contiguous().mT,
            "v_cache": self._scattered(self.values, places),
            "block_tables": tables,
            "seq_lens": torch.tensor([len(k) for k in self.keys], dtype=torch.int32),
            "scale": self.shape.scale,
            "sliding_window": None,
        }

    def _scattered(self, rows_of_sequences: list[Tensor], places: Tensor) -> Tensor:
        """[num_blocks, kv_heads, block_size, head_dim], the sequences' blocks at `places` in turn."""
        size = self.shape.block_size
        padded = [pad(rows, (0, 0, 0, 0, 0, -len(rows) % size), value=torch.nan) for rows in rows_of_sequences]
        blocks = torch.cat(padded).unflatten(0, (-1, size)).transpose(1, 2)
        cache = torch.full((len(places), *blocks.shape[1:]), torch.nan, dtype=blocks.dtype)
        cache[places[: len(blocks)]] = blocks
        return cache


def query_start(query_lens: Sequence[int]) -> Tensor:
    return torch.tensor((0, *query_lens)).cumsum(0).to(torch.int32)
