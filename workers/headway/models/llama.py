"""Llama and the families that differ from it by configuration.

Mistral, Qwen2, Qwen3, SmolLM, SmolLM3, TinyLlama; with experts Mixtral, Qwen2-MoE and Qwen3-MoE.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from headway import kernels
from headway.core.model import ModelSpec
from headway.models.attention import Attention, AttentionContext, LayerCache
from headway.models.embedding import VocabEmbedding
from headway.models.experts import MixtureOfExperts
from headway.models.head import Head
from headway.models.layout import Layout
from headway.models.linear import Linear
from headway.models.mlp import FeedForward, GatedMlp
from headway.models.model import DTYPES
from headway.models.rotary import rotary_table
from headway.models.weights import NamedPart, Part, Piece, Tensors, by_name, under


class LlamaLayer:
    """Attention and a gated MLP, or a mixture of experts, each after an RMS norm."""

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
        self.attention_norm = torch.empty(spec.hidden_size, dtype=dtype, device=device)
        self.attention = Attention(spec, layer, layout=layout, dtype=dtype, device=device, cos_sin=cos_sin)
        self.mlp_norm = torch.empty(spec.hidden_size, dtype=dtype, device=device)
        self.mlp: FeedForward
        if spec.experts is not None and spec.is_sparse(layer):
            self.mlp = MixtureOfExperts(spec, spec.experts, layout=layout, dtype=dtype, device=device)
        else:
            inner = Piece(layout.shard.mlp, spec.intermediate_size)
            self.mlp = GatedMlp(spec, inner, axis=layout.tensor, dtype=dtype, device=device)

    def named(self) -> Iterator[NamedPart]:
        yield "input_layernorm.weight", Part.whole(self.attention_norm)
        yield "post_attention_layernorm.weight", Part.whole(self.mlp_norm)
        yield from under("self_attn", self.attention.named("o_proj"))
        yield from under("mlp", self.mlp.named())


class Llama:
    """See `headway.models.model.Model`."""

    def __init__(self, spec: ModelSpec, *, layout: Layout, device: torch.device) -> None:
        dtype = DTYPES[spec.dtype]
        cos_sin = rotary_table(spec.rope, spec.max_position).to(device) if spec.rope else None
        self._spec = spec
        self._embedding = VocabEmbedding(spec, layout=layout, dtype=dtype, device=device)
        self._layers = [
            LlamaLayer(spec, layer, layout=layout, dtype=dtype, device=device, cos_sin=cos_sin)
            for layer in range(spec.num_layers)
        ]
        self._norm = torch.empty(spec.hidden_size, dtype=dtype, device=device)
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
        eps = self._spec.norm_eps
        residual = self._embedding(token_ids)
        hidden = kernels.rms_norm(residual, self._layers[0].attention_norm, eps=eps)
        next_norms = [layer.attention_norm for layer in self._layers[1:]] + [self._norm]
        for layer, cache, next_norm in zip(self._layers, kv_cache, next_norms, strict=True):
            attended = layer.attention(hidden, positions, attention, cache)
            if rows is not None and layer is self._layers[-1]:
                attended, residual = attended[rows], residual[rows]
            hidden = layer.attention.output(attended)
            hidden = kernels.add_rms_norm(hidden, residual, layer.mlp_norm, eps=eps)
            hidden = layer.mlp(hidden)
            hidden = kernels.add_rms_norm(hidden, residual, next_norm, eps=eps)
        return hidden

    def compute_logits(self, hidden: Tensor) -> Tensor | None:
        return self._head(hidden)

    def tensors(self) -> Tensors:
        return by_name(self._named())

    def _named(self) -> Iterator[NamedPart]:
        yield "embed_tokens.weight", self._embedding.part
        yield "norm.weight", Part.whole(self._norm)
        for index, layer in enumerate(self._layers):
            yield from under(f"layers.{index}", layer.named())
        yield from self._head.named("lm_head")

    def linears(self) -> list[Linear]:
        linears = [self._head.linear]
        for layer in self._layers:
            linears += [*layer.attention.linears(), *layer.mlp.linears()]
        return linears
