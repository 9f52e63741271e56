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
    """See `headway.models.model.Model`."""

    def __init__(self, spec: ModelSpec, *, layout: Layout, device: torch.device) -> None:
        dtype = DTYPES[spec.dtype]
        self._embedding = VocabEmbedding(spec, layout=layout, dtype=dtype, device=device)
        self._positions = torch.empty(spec.max_position, spec.hidden_size, dtype=dtype, device=device)
        self._blocks = [
            Block(spec, layer, layout=layout, dtype=dtype, device=device) for layer in range(spec.num_layers)
        ]
        self._norm = LayerNorm(spec, dtype=dtype, device=device)
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
        hidden += functional.embedding(positions, self._positions)
        for block, cache in zip(self._blocks, kv_cache, strict=True):
            wanted = rows if block is self._blocks[-1] else None
            hidden = block(hidden, positions, attention, cache, rows=wanted)
        return self._norm(hidden)

    def compute_logits(self, hidden: Tensor) -> Tensor | None:
        return self._head(hidden)

    def tensors(self) -> Tensors:
        return by_name(self._named())

    def _named(self) -> Iterator[NamedPart]:
        yield "wte.weight", self._embedding.part
        yield "wpe.weight", Part.whole(self._positions)
        yield from self._norm.named("ln_f")
        for index, block in enumerate(self._blocks):
            yield from under(f"h.{index}", _named_in_block(block))
        yield from self._head.named("lm_head")

    def linears(self) -> list[Linear]:
        return [self._head.linear, *(linear for block in self._blocks for linear in block.linears())]


def _named_in_block(block: Block) -> Iterator[NamedPart]:
    yield from block.attention_norm.named("ln_1")
    yield from block.attention.named_fused("attn.c_attn", "attn.c_proj")
    yield from block.mlp_norm.named("ln_2")
    yield from block.named_mlp(up="mlp.c_fc", down="mlp.c_proj", transposed=True)
