"""Self-attention over a paged KV cache, for a flat batch of ragged sequences."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headway import kernels
from headway.core.model import ModelSpec
from headway.models.linear import Linear

LayerCache = tuple[Tensor, Tensor]
"""One layer's keys and values, each [num_blocks, num_kv_heads, block_size, head_dim]."""


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
    """Fused query, key and value projection, rotation, cache and paged attention of one layer.

    The caller applies `output` to what `__call__` returns, on the rows that it needs.
    """

    def __init__(
        self, spec: ModelSpec, layer: int, *, dtype: torch.dtype, device: torch.device, cos_sin: Tensor | None
    ) -> None:
        self.query_size = spec.num_heads * spec.head_dim
        self.key_size = spec.num_kv_heads * spec.head_dim
        self.qkv = Linear(
            spec.hidden_size,
            self.query_size + 2 * self.key_size,
            bias=spec.attention_bias,
            dtype=dtype,
            device=device,
        )
        self.output = Linear(
            self.query_size, spec.hidden_size, bias=spec.attention_output_bias, dtype=dtype, device=device
        )
        self.q_norm = torch.empty(spec.head_dim, dtype=dtype, device=device) if spec.qk_norm else None
        self.k_norm = torch.empty(spec.head_dim, dtype=dtype, device=device) if spec.qk_norm else None
        self._num_heads = [spec.num_heads, spec.num_kv_heads, spec.num_kv_heads]
        self._head_dim = spec.head_dim
        self._scale = spec.head_dim**-0.5
        self._window = spec.window(layer)
        self._norm_eps = spec.norm_eps
        self._cos_sin = cos_sin if spec.rotates(layer) else None

    def __call__(self, x: Tensor, positions: Tensor, context: AttentionContext, cache: LayerCache) -> Tensor:
        """x [T, hidden] -> [T, num_heads * head_dim], writing the tokens' keys and values into the cache."""
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
        return out.view(x.shape[0], self.query_size)

    def named_projections(self, output: str) -> Iterator[tuple[str, Tensor]]:
        """Checkpoint names where query, key and value are stored apart; `output` names the output projection."""
        yield from self.qkv.named_parts(q_proj=self.query_size, k_proj=self.key_size, v_proj=self.key_size)
        yield from self.output.named(output)
        if self.q_norm is not None and self.k_norm is not None:
            yield "q_norm.weight", self.q_norm
            yield "k_norm.weight", self.k_norm
