"""The exchange between ranks that share each sequence's keys and values, before and after attention (thesis section
4.4).

Before attention every rank gets the queries, keys and values of all tokens; after it, each gets what the others' shards
say about its own tokens, or its own heads.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig, Span, split
from headway.core.shard import shard_of
from headway.models.layout import CacheAxis, CacheExchange


class RowExchange:
    """Outside attention each rank has some of the tokens, with all heads: data parallel."""

    def __init__(self, axis: CacheAxis) -> None:
        self._axis = axis

    def gather(self, heads: Tensor, num_tokens: int) -> Tensor:
        return torch.cat(self._axis.all_gather(heads.contiguous(), sizes=self._sizes(num_tokens), site="qkv"))

    def room(self, q: Tensor, width: int) -> Tensor:
        return q.new_empty((*q.shape[:2], width), dtype=torch.float32)

    def scatter(self, partials: Tensor) -> Tensor:
        sizes = self._sizes(len(partials))
        own = (sizes[self._axis.rank], *partials.shape[1:])
        parts = list(torch.split(partials, sizes))
        return torch.stack(self._axis.all_to_all(parts, shapes=[own] * self._axis.size, site="partials"))

    def _sizes(self, num_tokens: int) -> list[int]:
        return [len(split(num_tokens, parts=self._axis.size, index=rank)) for rank in range(self._axis.size)]


class HeadExchange:
    """Outside attention each rank has all tokens, with some of the heads: tensor parallel.

    Args:
        query_heads, kv_heads: that each rank projects, by rank; KV heads may be on several.
    """

    def __init__(self, axis: CacheAxis, *, query_heads: Sequence[Span], kv_heads: Sequence[Span]) -> None:
        self._axis = axis
        self._num_queries = [len(span) for span in query_heads]
        self._num_projected = [len(queries) + 2 * len(kv) for queries, kv in zip(query_heads, kv_heads, strict=True)]
        self._pieces = _pieces(query_heads, kv_heads)

    def gather(self, heads: Tensor, num_tokens: int) -> Tensor:
        sizes = [num_tokens * num_heads for num_heads in self._num_projected]
        flat = heads.reshape(-1, heads.shape[2])
        gathered = self._axis.all_gather(flat, sizes=sizes, site="qkv")
        by_token = [part.view(num_tokens, -1, heads.shape[2]) for part in gathered]
        return torch.cat([by_token[rank][:, piece] for rank, piece in self._pieces], dim=1)

    def room(self, q: Tensor, width: int) -> Tensor:
        return q.new_empty((q.shape[1], q.shape[0], width), dtype=torch.float32).transpose(0, 1)

    def scatter(self, partials: Tensor) -> Tensor:
        parts = list(torch.split(partials.transpose(0, 1), self._num_queries))
        shapes = [parts[self._axis.rank].shape] * self._axis.size
        received = self._axis.all_to_all(parts, shapes=shapes, site="partials")
        return torch.stack(received).transpose(1, 2)


def _pieces(query_heads: Sequence[Span], kv_heads: Sequence[Span]) -> list[tuple[int, slice]]:
    """(rank, heads of what it projects): the queries of all ranks, then the keys, then the values, each once."""
    queries, keys, values = [], [], []
    num_known = kv_heads[0].start
    for rank, (own_queries, own_kv) in enumerate(zip(query_heads, kv_heads, strict=True)):
        first_key, first_value = len(own_queries), len(own_queries) + len(own_kv)
        num_old = max(num_known - own_kv.start, 0)  # those of ranks before
        queries.append((rank, slice(0, first_key)))
        keys.append((rank, slice(first_key + num_old, first_value)))
        values.append((rank, slice(first_value + num_old, first_value + len(own_kv))))
        num_known = own_kv.stop
    return [*queries, *keys, *values]


def exchange_of(spec: ModelSpec, parallel: ParallelConfig, *, rank: int, axis: CacheAxis) -> CacheExchange | None:
    """Returns the cache exchange of a rank of the group; None where the cache is not split."""
    if parallel.cp == 1:
        return None
    if parallel.cp_ffn == "data":
        return RowExchange(axis)
    shards = [shard_of(spec, parallel, rank=mate) for mate in parallel.cache_ranks(rank)]
    return HeadExchange(
        axis, query_heads=[shard.query_heads for shard in shards], kv_heads=[shard.kv_heads for shard in shards]
    )
