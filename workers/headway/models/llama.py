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
    """The Llama family of decoders; see `headway.models.model.Model`."""

    def __init__(self, spec: ModelSpec, *, layout: Layout, device: torch.device) -> None:
        dtype, shard = DTYPES[spec.dtype], layout.shard
        cos_sin = rotary_table(spec.rope, spec.max_position).to(device) if spec.rope else None
        self._spec = spec
        self._embedding: VocabEmbedding | None = None
        self._norm: Tensor | None = None
        if shard.is_first:
            self._embedding = VocabEmbedding(spec, layout=layout, dtype=dtype, device=device)
        self._layers = {
            layer: LlamaLayer(spec, layer, layout=layout, dtype=dtype, device=device, cos_sin=cos_sin)
            for layer in shard.layers
        }
        if shard.is_last:
            self._norm = torch.empty(spec.hidden_size, dtype=dtype, device=device)
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
        eps, layers = self._spec.norm_eps, list(self._layers.values())
        residual = self._embed(token_ids) if entering is None else entering
        hidden = kernels.rms_norm(residual, layers[0].attention_norm, eps=eps)
        next_norms = [*(layer.attention_norm for layer in layers[1:]), self._norm]
        last = None if self._norm is None else layers[-1]
        for layer, cache, next_norm in zip(layers, kv_cache, next_norms, strict=True):
            attended = layer.attention(hidden, attention, cache)
            if rows is not None and layer is last:
                attended, residual = attended[rows], residual[rows]
            hidden = layer.attention.output(attended)
            hidden = kernels.add_rms_norm(hidden, residual, layer.mlp_norm, eps=eps)
            hidden = layer.mlp(hidden)
            if next_norm is None:
                return residual.add_(hidden)
            hidden = kernels.add_rms_norm(hidden, residual, next_norm, eps=eps)
        return hidden

    def _embed(self, token_ids: Tensor) -> Tensor:
        assert self._embedding is not None, "the first stage embeds"
        return self._embedding(token_ids)

    def compute_logits(self, hidden: Tensor) -> Tensor | None:
        return self._head(hidden)

    def largest_logits(self, hidden: Tensor) -> tuple[Tensor, Tensor] | None:
        return self._head.largest(hidden)

    def tensors(self) -> Tensors:
        return by_name(self._named())

    def _named(self) -> Iterator[NamedPart]:
        if self._embedding is not None:
            yield "embed_tokens.weight", self._embedding.part
        for index, layer in self._layers.items():
            yield from under(f"layers.{index}", layer.named())
        if self._norm is not None:
            yield "norm.weight", Part.whole(self._norm)
        yield from self._head.named("lm_head", embedding="embed_tokens")

    def linears(self) -> list[Linear]:
        linears = [self._head.linear]
        for layer in self._layers.values():
            linears += [*layer.attention.linears(), *layer.mlp.linears()]
        return linears
