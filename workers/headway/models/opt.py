"""OPT: learned positions, layer norms before the sublayers or, in OPT-350m, after them."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from headway.core.model import ModelSpec
from headway.models.attention import AttentionContext, LayerCache
from headway.models.block import Block, LayerNorm
from headway.models.linear import Linear
from headway.models.model import DTYPES

# The first rows of the position table belong to padding.
_POSITION_OFFSET = 2


class Opt:
    """See `headway.models.model.Model`."""

    def __init__(self, spec: ModelSpec, *, device: torch.device) -> None:
        dtype = DTYPES[spec.dtype]
        self._spec = spec
        self._embedding = torch.empty(spec.vocab_size, spec.embedding_dim, dtype=dtype, device=device)
        self._positions = torch.empty(
            spec.max_position + _POSITION_OFFSET, spec.hidden_size, dtype=dtype, device=device
        )
        self._blocks = [Block(spec, layer, dtype=dtype, device=device) for layer in range(spec.num_layers)]
        self._norm = LayerNorm(spec, dtype=dtype, device=device) if spec.final_norm else None
        self._project_in: Linear | None = None
        self._project_out: Linear | None = None
        if spec.embedding_dim != spec.hidden_size:
            sizes = (spec.embedding_dim, spec.hidden_size)
            self._project_in = Linear(*sizes, bias=False, dtype=dtype, device=device)
            self._project_out = Linear(*reversed(sizes), bias=False, dtype=dtype, device=device)
        self._head = Linear(
            spec.embedding_dim,
            spec.vocab_size,
            bias=False,
            dtype=dtype,
            device=device,
            weight=self._embedding if spec.tied_embeddings else None,
        )

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        attention: AttentionContext,
        kv_cache: Sequence[LayerCache],
        *,
        rows: Tensor | None = None,
    ) -> Tensor:
        hidden = functional.embedding(token_ids, self._embedding)
        if self._project_in is not None:
            hidden = self._project_in(hidden)
        hidden += functional.embedding(positions, self._positions[_POSITION_OFFSET:])
        for block, cache in zip(self._blocks, kv_cache, strict=True):
            wanted = rows if block is self._blocks[-1] else None
            hidden = block(hidden, positions, attention, cache, rows=wanted)
        if self._norm is not None:
            hidden = self._norm(hidden)
        return hidden if self._project_out is None else self._project_out(hidden)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        return self._head(hidden).float()

    def tensors(self) -> dict[str, Tensor]:
        tensors = {"embed_tokens.weight": self._embedding, "embed_positions.weight": self._positions}
        for index, block in enumerate(self._blocks):
            named = [(f"self_attn.{name}", view) for name, view in block.attention.named_projections("out_proj")]
            named += block.attention_norm.named("self_attn_layer_norm")
            named += block.up.named("fc1")
            named += block.down.named("fc2")
            named += block.mlp_norm.named("final_layer_norm")
            tensors |= {f"layers.{index}.{name}": view for name, view in named}
        if self._norm is not None:
            tensors |= self._norm.named("final_layer_norm")
        if self._project_in is not None and self._project_out is not None:
            tensors |= self._project_in.named("project_in")
            tensors |= self._project_out.named("project_out")
        if not self._spec.tied_embeddings:
            tensors["lm_head.weight"] = self._head.weight
        return tensors

    def linears(self) -> list[Linear]:
        projections = [layer for layer in (self._project_in, self._project_out) if layer is not None]
        return [self._head, *projections, *(linear for block in self._blocks for linear in block.linears())]
