"""Self-attention over a paged KV cache, for a flat batch of ragged sequences."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from headway import kernels
from headway.core.model import ModelSpec
from headway.models.layout import CacheExchange, Layout
from headway.models.linear import Linear
from headway.models.row_linear import RowLinear
from headway.models.weights import NamedPart, Part, Piece

LayerCache = tuple[Tensor, Tensor]
"""One layer's keys and values, each [num_blocks, kv heads, block_size, head_dim]."""


@dataclass(frozen=True, slots=True)
class Decodes:
    """The first sequences of a step, which have one token each, where the kernels of the device take them apart.

    Attributes:
        block_tables: [count, max_blocks] int32, padded with zeros.
        tables: which keys they see and how those are cut, by window.
    """

    count: int
    block_tables: Tensor
    tables: Mapping[int | None, kernels.DecodeTable]


@dataclass(frozen=True, slots=True)
class AttentionContext:
    """The places of a step's tokens in the KV cache: T tokens, one sequence after the other, B sequences behind the
    `decodes`.

    Attributes:
        positions: [T] int64, the tokens' positions in their sequences.
        slot_mapping: [T] int64, block * block_size + offset that each token's key and value go to; -1: not here.
        block_tables: [B, max_blocks] int32, padded with zeros.
        seq_lens: [B] int32, tokens of each sequence in the cache here after this step.
        query_start: [B + 1] int32, first token of each sequence, counted from the first behind the `decodes`, then the
            number of tokens there.
        own_positions: [t] int64, the positions of the tokens that this rank has outside attention.
        key_spans: [tokens of the B, 2] int32, the tokens here that each one sees, by window; where the cache is not
            split each sees all up to itself, and nothing is said.
        decodes: None where all sequences are among the B.
    """

    positions: Tensor
    slot_mapping: Tensor
    block_tables: Tensor
    seq_lens: Tensor
    query_start: Tensor
    own_positions: Tensor
    key_spans: Mapping[int | None, Tensor] = field(default_factory=dict)
    decodes: Decodes | None = None


class Attention:
    """Fused query, key and value projection, rotation, cache and paged attention of one layer, for a rank's heads.

    Where the cache is split, the rank attends to its part of it for all ranks along that axis, and puts together what
    they have made of its own tokens and heads. The caller applies `output` to what `__call__` returns, on the rows that
    it needs.
    """

    def __init__(
        self,
        spec: ModelSpec,
        layer: int,
        *,
        layout: Layout,
        dtype: torch.dtype,
        device: torch.device,
        cos_sin: Tensor | None,
    ) -> None:
        query_heads, kv_heads = layout.shard.query_heads, layout.shard.kv_heads
        self._queries = Piece(query_heads, spec.num_heads).times(spec.head_dim)
        self._keys = Piece(kv_heads, spec.num_kv_heads).times(spec.head_dim)
        self.qkv = Linear(
            spec.hidden_size,
            len(self._queries) + 2 * len(self._keys),
            bias=spec.attention_bias,
            dtype=dtype,
            device=device,
        )
        self.output = RowLinear(
            len(self._queries),
            spec.hidden_size,
            bias=spec.attention_output_bias,
            dtype=dtype,
            device=device,
            axis=layout.tensor,
            site="attention",
        )
        self.q_norm = torch.empty(spec.head_dim, dtype=dtype, device=device) if spec.qk_norm else None
        self.k_norm = torch.empty(spec.head_dim, dtype=dtype, device=device) if spec.qk_norm else None
        self._num_projected = len(query_heads) + 2 * len(kv_heads)
        num_cached = len(layout.shard.cached_kv_heads)
        self._num_heads = [len(layout.shard.attended_query_heads), num_cached, num_cached]
        self._exchange = layout.exchange
        self._query_size = len(self._queries)
        self._head_dim = spec.head_dim
        self._scale = spec.head_dim**-0.5
        self._window = spec.window(layer)
        self._norm_eps = spec.norm_eps
        self._cos_sin = cos_sin if spec.rotates(layer) else None

    def __call__(self, x: Tensor, context: AttentionContext, cache: LayerCache) -> Tensor:
        """x [t, hidden] -> [t, query heads * head_dim], writing the tokens' keys and values into the cache.

        t is T, but where ranks that share the cache have rows of their own.
        """
        heads = self.qkv(x).view(len(x), self._num_projected, self._head_dim)
        if self._exchange is not None:
            heads = self._exchange.gather(heads, len(context.positions))
        q, k, v = torch.split(heads, self._num_heads, dim=1)
        k_cache, v_cache = cache
        kernels.rotate_and_cache(
            q,
            k,
            v,
            k_cache=k_cache,
            v_cache=v_cache,
            slot_mapping=context.slot_mapping,
            positions=context.positions,
            cos_sin=self._cos_sin,
            q_norm_weight=self.q_norm,
            k_norm_weight=self.k_norm,
            norm_eps=self._norm_eps,
        )
        attend = self._attend if self._exchange is None else partial(self._attend_together, self._exchange)
        return attend(q, context, cache).view(len(x), self._query_size)

    def _attend_together(
        self, exchange: CacheExchange, q: Tensor, context: AttentionContext, cache: LayerCache
    ) -> Tensor:
        partials = exchange.room(q, self._head_dim + 1)
        self._attend(q, context, cache, out=partials[..., :-1], lse=partials[..., -1])
        return kernels.merge_partials(exchange.scatter(partials), dtype=q.dtype)

    def _attend(
        self,
        q: Tensor,
        context: AttentionContext,
        cache: LayerCache,
        *,
        out: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> Tensor:
        """Attends to the keys on this rank, for all rows; see `kernels.paged_attention`."""
        decodes = context.decodes
        if decodes is None:
            return self._attend_chunks(q, context, cache, out=out, lse=lse)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if out is None else out
        count = decodes.count
        kernels.decode_attention(
            q[:count],
            k_cache=cache[0],
            v_cache=cache[1],
            block_tables=decodes.block_tables,
            table=decodes.tables[self._window],
            scale=self._scale,
            out=out[:count],
            lse=None if lse is None else lse[:count],
        )
        if count < len(q):
            rest_lse = None if lse is None else lse[count:]
            self._attend_chunks(q[count:], context, cache, out=out[count:], lse=rest_lse)
        return out

    def _attend_chunks(
        self, q: Tensor, context: AttentionContext, cache: LayerCache, *, out: Tensor | None, lse: Tensor | None
    ) -> Tensor:
        spans = context.key_spans.get(self._window)
        return kernels.paged_attention(
            q,
            k_cache=cache[0],
            v_cache=cache[1],
            block_tables=context.block_tables,
            seq_lens=context.seq_lens,
            query_start=context.query_start,
            scale=self._scale,
            sliding_window=self._window if spans is None else None,
            key_spans=spans,
            out=out,
            lse=lse,
        )

    def named(self, output: str) -> Iterator[NamedPart]:
        """Returns the stored tensors where query, key and value are apart; `output` names the output projection."""
        yield from self.qkv.named_parts(("q_proj", self._queries), ("k_proj", self._keys), ("v_proj", self._keys))
        yield from self.output.named(output, columns=self._queries)
        if self.q_norm is not None and self.k_norm is not None:
            yield "q_norm.weight", Part.whole(self.q_norm)
            yield "k_norm.weight", Part.whole(self.k_norm)

    def named_fused(self, qkv: str, output: str) -> Iterator[NamedPart]:
        """Returns the stored tensors where query, key and value are one, and all weights transposed."""
        queries, keys = self._queries, self._keys
        size = queries.size + 2 * keys.size
        rows = (
            queries.within(size, start=0),
            keys.within(size, start=queries.size),
            keys.within(size, start=queries.size + keys.size),
        )
        yield from self.qkv.named_parts(*((qkv, piece) for piece in rows), transposed=True)
        yield from self.output.named(output, columns=queries, transposed=True)

    def linears(self) -> list[Linear]:
        return [self.qkv, self.output]
