"""Self-attention over a paged KV cache, for a flat batch of ragged sequences."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headway import kernels
from headway.core.model import ModelSpec
from headway.models.layout import Layout
from headway.models.linear import Linear
from headway.models.row_linear import RowLinear
from headway.models.weights import NamedPart, Part, Piece

LayerCache = tuple[Tensor, Tensor]
"""One layer's keys and values, each [num_blocks, kv heads, block_size, head_dim]."""


@dataclass(frozen=True, slots=True)
class AttentionContext:
    """Where the tokens of a step belong: T tokens of B sequences, one after the other.

    Attributes:
        slot_mapping: [T] int64, block * block_size + offset that each token's key and value go to.
        block_tables: [B, max_blocks] int32, padded with zeros.
        seq_lens: [B] int32, tokens of each sequence in the cache after this step.
        query_start: [B + 1] int32, first token of each sequence in the batch, then T.
    """

    slot_mapping: Tensor
    block_tables: Tensor
    seq_lens: Tensor
    query_start: Tensor


class Attention:
    """Fused query, key and value projection, rotation, cache and paged attention of one layer, for a rank's heads.

    The caller applies `output` to what `__call__` returns, on the rows that it needs.
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
        self._num_heads = [len(query_heads), len(kv_heads), len(kv_heads)]
        self._query_size = len(self._queries)
        self._head_dim = spec.head_dim
        self._scale = spec.head_dim**-0.5
        self._window = spec.window(layer)
        self._norm_eps = spec.norm_eps
        self._cos_sin = cos_sin if spec.rotates(layer) else None

    def __call__(self, x: Tensor, positions: Tensor, context: AttentionContext, cache: LayerCache) -> Tensor:
        """x [T, hidden] -> [T, query heads * head_dim], writing the tokens' keys and values into the cache."""
        heads = self.qkv(x).view(x.shape[0], -1, self._head_dim)
        q, k, v = torch.split(heads, self._num_heads, dim=1)
        k_cache, v_cache = cache
        kernels.rotate_and_cache(
            q,
            k,
            v,
            k_cache=k_cache,
            v_cache=v_cache,
            slot_mapping=context.slot_mapping,
            positions=positions,
            cos_sin=self._cos_sin,
            q_norm_weight=self.q_norm,
            k_norm_weight=self.k_norm,
            norm_eps=self._norm_eps,
        )
        out = kernels.paged_attention(
            q,
            k_cache=k_cache,
            v_cache=v_cache,
            block_tables=context.block_tables,
            seq_lens=context.seq_lens,
            query_start=context.query_start,
            scale=self._scale,
            sliding_window=self._window,
        )
        return out.view(x.shape[0], self._query_size)

    def named(self, output: str) -> Iterator[NamedPart]:
        """What is stored where query, key and value are apart; `output` names the output projection."""
        yield from self.qkv.named_parts(("q_proj", self._queries), ("k_proj", self._keys), ("v_proj", self._keys))
        yield from self.output.named(output, columns=self._queries)
        if self.q_norm is not None and self.k_norm is not None:
            yield "q_norm.weight", Part.whole(self.q_norm)
            yield "k_norm.weight", Part.whole(self.k_norm)

    def named_fused(self, qkv: str, output: str) -> Iterator[NamedPart]:
        """What is stored where they are one, and all weights transposed."""
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
