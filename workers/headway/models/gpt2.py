"""GPT-2: learned positions, fused query-key-value weights stored transposed."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from headway.core.model import ModelSpec
from headway.models.attention import AttentionContext, LayerCache
from headway.models.block import Block, LayerNorm
from headway.models.linear import Linear
from headway.models.model import DTYPES


class Gpt2:
    """See `headway.models.model.Model`."""

    def __init__(self, spec: ModelSpec, *, device: torch.device) -> None:
        dtype = DTYPES[spec.dtype]
        self._spec = spec
        self._embedding = torch.empty(spec.vocab_size, spec.hidden_size, dtype=dtype, device=device)
        self._positions = torch.empty(spec.max_position, spec.hidden_size, dtype=dtype, device=device)
        self._blocks = [Block(spec, layer, dtype=dtype, device=device) for layer in range(spec.num_layers)]
        self._norm = LayerNorm(spec, dtype=dtype, device=device)
        self._head = Linear(
            spec.hidden_size,
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
        hidden += functional.embedding(positions, self._positions)
        for block, cache in zip(self._blocks, kv_cache, strict=True):
            wanted = rows if block is self._blocks[-1] else None
            hidden = block(hidden, positions, attention, cache, rows=wanted)
        return self._norm(hidden)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        return self._head(hidden).float()

    def tensors(self) -> dict[str, Tensor]:
        tensors = {"wte.weight": self._embedding, "wpe.weight": self._positions}
        tensors |= self._norm.named("ln_f")
        for index, block in enumerate(self._blocks):
            named = [
                *block.attention_norm.named("ln_1"),
                *block.attention.qkv.named("attn.c_attn", transposed=True),
                *block.attention.output.named("attn.c_proj", transposed=True),
                *block.mlp_norm.named("ln_2"),
                *block.up.named("mlp.c_fc", transposed=True),
                *block.down.named("mlp.c_proj", transposed=True),
            ]
            tensors |= {f"h.{index}.{name}": view for name, view in named}
        if not self._spec.tied_embeddings:
            tensors["lm_head.weight"] = self._head.weight
        return tensors

    def linears(self) -> list[Linear]:
        return [self._head, *(linear for block in self._blocks for linear in block.linears())]
