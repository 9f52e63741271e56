"""How ranks that share each sequence's keys and values hand each other what attention needs (thesis section 4.4).

Before attention every rank gets the queries, keys and values of all tokens; after it, each gets what the others' shards
say about its own tokens, or its own heads.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from headway.core.mesh import ParallelConfig, Span, split
from headway.core.model import ModelSpec
from headway.core.shard import shard_of
from headway.models.layout import CacheAxis, CacheExchange


class RowExchange:
    """Outside attention each rank has some of the tokens, with all heads: data parallel."""

    def __init__(self, axis: CacheAxis) -> None:
        self._axis = axis

    def gather(self, heads: Tensor, num_tokens: int) -> Tensor:
        return torch.cat(self._axis.all_gather(heads.contiguous(), sizes=self._sizes(num_tokens), site="qkv"))

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
        self._sizes = [len(queries) + 2 * len(kv) for queries, kv in zip(query_heads, kv_heads, strict=True)]
        self._order = torch.tensor(_places(query_heads, kv_heads))

    def gather(self, heads: Tensor, num_tokens: int) -> Tensor:  # noqa: ARG002 - every rank has all
        gathered = self._axis.all_gather(heads.transpose(0, 1).contiguous(), sizes=self._sizes, site="qkv")
        return torch.cat(gathered)[self._order.to(heads.device)].transpose(0, 1).contiguous()

    def scatter(self, partials: Tensor) -> Tensor:
        by_head = partials.transpose(0, 1)
        own = (self._num_queries[self._axis.rank], *by_head.shape[1:])
        parts = [part.contiguous() for part in torch.split(by_head, self._num_queries)]
        return torch.stack(self._axis.all_to_all(parts, shapes=[own] * self._axis.size, site="partials")).transpose(
            1, 2
        )


def _places(query_heads: Sequence[Span], kv_heads: Sequence[Span]) -> list[int]:
    """Where, among the heads of all ranks one behind the other, those of q, then of k, then of v lie, each once."""
    queries: list[int] = []
    keys: dict[int, int] = {}
    values: dict[int, int] = {}
    start = 0
    for own_queries, own_kv in zip(query_heads, kv_heads, strict=True):
        queries += range(start, start + len(own_queries))
        start += len(own_queries)
        for head in own_kv:
            place = start + head - own_kv.start
            keys.setdefault(head, place)
            values.setdefault(head, place + len(own_kv))
        start += 2 * len(own_kv)
    return [*queries, *keys.values(), *values.values()]


def exchange_of(spec: ModelSpec, parallel: ParallelConfig, *, rank: int, axis: CacheAxis) -> CacheExchange | None:
    """How a rank of the group takes part; None where the cache is not split."""
    if parallel.cp == 1:
        return None
    if parallel.cp_ffn == "data":
        return RowExchange(axis)
    shards = [shard_of(spec, parallel, rank=mate) for mate in parallel.cache_ranks(rank)]
    return HeadExchange(
        axis, query_heads=[shard.query_heads for shard in shards], kv_heads=[shard.kv_heads for shard in shards]
    )
