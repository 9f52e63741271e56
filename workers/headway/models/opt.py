"""OPT: learned positions, layer norms before the sublayers or, in OPT-350m, after them."""

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

# The first rows of the position table belong to padding.
_POSITION_OFFSET = 2


class Opt:
    """The OPT decoder; see `headway.models.model.Model`."""

    def __init__(self, spec: ModelSpec, *, layout: Layout, device: torch.device) -> None:
        dtype, shard = DTYPES[spec.dtype], layout.shard
        sizes = (spec.embedding_dim, spec.hidden_size)
        is_narrow = spec.embedding_dim != spec.hidden_size
        self._embedding: VocabEmbedding | None = None
        self._positions: Tensor | None = None
        self._project_in: Linear | None = None
        self._norm: LayerNorm | None = None
        self._project_out: Linear | None = None
        if shard.is_first:
            self._embedding = VocabEmbedding(spec, layout=layout, dtype=dtype, device=device)
            num_positions = spec.max_position + _POSITION_OFFSET
            self._positions = torch.empty(num_positions, spec.hidden_size, dtype=dtype, device=device)
            if is_narrow:
                self._project_in = Linear(*sizes, bias=False, dtype=dtype, device=device)
        self._blocks = {layer: Block(spec, layer, layout=layout, dtype=dtype, device=device) for layer in shard.layers}
        self._is_last = shard.is_last
        if shard.is_last:
            if spec.final_norm:
                self._norm = LayerNorm(spec, dtype=dtype, device=device)
            if is_narrow:
                self._project_out = Linear(*reversed(sizes), bias=False, dtype=dtype, device=device)
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
        if self._norm is not None:
            hidden = self._norm(hidden)
        return hidden if self._project_out is None else self._project_out(hidden)

    def _embed(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        assert self._embedding is not None, "the first stage embeds"
        assert self._positions is not None, "the first stage embeds"
        hidden = self._embedding(token_ids)
        if self._project_in is not None:
            hidden = self._project_in(hidden)
        return hidden.add_(functional.embedding(positions, self._positions[_POSITION_OFFSET:]))

    def compute_logits(self, hidden: Tensor) -> Tensor | None:
        return self._head(hidden)

    def largest_logits(self, hidden: Tensor) -> tuple[Tensor, Tensor] | None:
        return self._head.largest(hidden)

    def tensors(self) -> Tensors:
        return by_name(self._named())

    def _named(self) -> Iterator[NamedPart]:
        if self._embedding is not None:
            yield "embed_tokens.weight", self._embedding.part
        if self._positions is not None:
            yield "embed_positions.weight", Part.whole(self._positions)
        if self._project_in is not None:
            yield from self._project_in.named("project_in")
        for index, block in self._blocks.items():
            yield from under(f"layers.{index}", _named_in_block(block))
        if self._norm is not None:
            yield from self._norm.named("final_layer_norm")
        if self._project_out is not None:
            yield from self._project_out.named("project_out")
        yield from self._head.named("lm_head", embedding="embed_tokens")

    def linears(self) -> list[Linear]:
        projections = [layer for layer in (self._project_in, self._project_out) if layer is not None]
        return [
            self._head.linear,
            *projections,
            *(linear for block in self._blocks.values() for linear in block.linears()),
        ]


def _named_in_block(block: Block) -> Iterator[NamedPart]:
    yield from under("self_attn", block.attention.named("out_proj"))
    yield from block.attention_norm.named("self_attn_layer_norm")
    yield from block.named_mlp(up="fc1", down="fc2")
    yield from block.mlp_norm.named("final_layer_norm")
