"""GPT-2: learned positions, fused query-key-value weights stored transposed."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from headway.core.model import ModelSpec
from headway.models.attention import AttentionContext, LayerCache
from headway.models.block import Block, LayerNorm
from headway.models.embedding import VocabEmbedding
from headway.models.head import Head
from headway.models.layout import Layout
from headway.models.linear import Linear
from headway.models.model import DTYPES
from headway.models.weights import NamedPart, Part, Tensors, by_name, under


class Gpt2:
    """The GPT-2 decoder; see `headway.models.model.Model`."""

    def __init__(self, spec: ModelSpec, *, layout: Layout, device: torch.device) -> None:
        dtype, shard = DTYPES[spec.dtype], layout.shard
        self._embedding: VocabEmbedding | None = None
        self._positions: Tensor | None = None
        self._norm: LayerNorm | None = None
        if shard.is_first:
            self._embedding = VocabEmbedding(spec, layout=layout, dtype=dtype, device=device)
            self._positions = torch.empty(spec.max_position, spec.hidden_size, dtype=dtype, device=device)
        self._blocks = {layer: Block(spec, layer, layout=layout, dtype=dtype, device=device) for layer in shard.layers}
        self._is_last = shard.is_last
        if shard.is_last:
            self._norm = LayerNorm(spec, dtype=dtype, device=device)
        self._head = Head(spec, self._embedding, layout=layout, dtype=dtype, device=device)

    def forward(
        self,
        token_ids: Tensor,
        attention: AttentionContext,
        kv_cache: Sequence[LayerCache],
        *,
        entering: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        hidden = self._embed(token_ids, attention.own_positions) if entering is None else entering
        last = self._blocks[max(self._blocks)] if self._is_last else None
        for block, cache in zip(self._blocks.values(), kv_cache, strict=True):
            hidden = block(hidden, attention, cache, rows=rows if block is last else None)
        return hidden if self._norm is None else self._norm(hidden)

    def _embed(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        assert self._embedding is not None, "the first stage embeds"
        assert self._positions is not None, "the first stage embeds"
        return self._embedding(token_ids).add_(functional.embedding(positions, self._positions))

    def compute_logits(self, hidden: Tensor) -> Tensor | None:
        return self._head(hidden)

    def largest_logits(self, hidden: Tensor) -> tuple[Tensor, Tensor] | None:
        return self._head.largest(hidden)

    def tensors(self) -> Tensors:
        return by_name(self._named())

    def _named(self) -> Iterator[NamedPart]:
        if self._embedding is not None:
            yield "wte.weight", self._embedding.part
        if self._positions is not None:
            yield "wpe.weight", Part.whole(self._positions)
        for index, block in self._blocks.items():
            yield from under(f"h.{index}", _named_in_block(block))
        if self._norm is not None:
            yield from self._norm.named("ln_f")
        yield from self._head.named("lm_head", embedding="wte")

    def linears(self) -> list[Linear]:
        return [self._head.linear, *(linear for block in self._blocks.values() for linear in block.linears())]


def _named_in_block(block: Block) -> Iterator[NamedPart]:
    yield from block.attention_norm.named("ln_1")
    yield from block.attention.named_fused("attn.c_attn", "attn.c_proj")
    yield from block.mlp_norm.named("ln_2")
    yield from block.named_mlp(up="mlp.c_fc", down="mlp.c_proj", transposed=True)
