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
    """See `headway.models.model.Model`."""

    def __init__(self, spec: ModelSpec, *, layout: Layout, device: torch.device) -> None:
        dtype = DTYPES[spec.dtype]
        self._embedding = VocabEmbedding(spec, layout=layout, dtype=dtype, device=device)
        self._positions = torch.empty(
            spec.max_position + _POSITION_OFFSET, spec.hidden_size, dtype=dtype, device=device
        )
        self._blocks = [
            Block(spec, layer, layout=layout, dtype=dtype, device=device) for layer in range(spec.num_layers)
        ]
        self._norm = LayerNorm(spec, dtype=dtype, device=device) if spec.final_norm else None
        self._project_in: Linear | None = None
        self._project_out: Linear | None = None
        if spec.embedding_dim != spec.hidden_size:
            sizes = (spec.embedding_dim, spec.hidden_size)
            self._project_in = Linear(*sizes, bias=False, dtype=dtype, device=device)
            self._project_out = Linear(*reversed(sizes), bias=False, dtype=dtype, device=device)
        self._head = Head(spec, self._embedding, layout=layout, dtype=dtype, device=device)

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        attention: AttentionContext,
        kv_cache: Sequence[LayerCache],
        *,
        rows: Tensor | None = None,
    ) -> Tensor:
        hidden = self._embedding(token_ids)
        if self._project_in is not None:
            hidden = self._project_in(hidden)
        hidden += functional.embedding(positions, self._positions[_POSITION_OFFSET:])
        for block, cache in zip(self._blocks, kv_cache, strict=True):
            wanted = rows if block is self._blocks[-1] else None
            hidden = block(hidden, positions, attention, cache, rows=wanted)
        if self._norm is not None:
            hidden = self._norm(hidden)
        return hidden if self._project_out is None else self._project_out(hidden)

    def compute_logits(self, hidden: Tensor) -> Tensor | None:
        return self._head(hidden)

    def tensors(self) -> Tensors:
        return by_name(self._named())

    def _named(self) -> Iterator[NamedPart]:
        yield "embed_tokens.weight", self._embedding.part
        yield "embed_positions.weight", Part.whole(self._positions)
        for index, block in enumerate(self._blocks):
            yield from under(f"layers.{index}", _named_in_block(block))
        if self._norm is not None:
            yield from self._norm.named("final_layer_norm")
        if self._project_in is not None and self._project_out is not None:
            yield from self._project_in.named("project_in")
            yield from self._project_out.named("project_out")
        yield from self._head.named("lm_head")

    def linears(self) -> list[Linear]:
        projections = [layer for layer in (self._project_in, self._project_out) if layer is not None]
        return [self._head.linear, *projections, *(linear for block in self._blocks for linear in block.linears())]


def _named_in_block(block: Block) -> Iterator[NamedPart]:
    yield from under("self_attn", block.attention.named("out_proj"))
    yield from block.attention_norm.named("self_attn_layer_norm")
    yield from block.named_mlp(up="fc1", down="fc2")
    yield from block.mlp_norm.named("final_layer_norm")
