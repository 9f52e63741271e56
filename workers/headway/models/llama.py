"""Llama and the families that differ from it by configuration.

Mistral, Qwen2, Qwen3, SmolLM, SmolLM3, TinyLlama; with experts Mixtral, Qwen2-MoE and Qwen3-MoE.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from headway import kernels
from headway.core.model import ModelSpec
from headway.models.attention import Attention, AttentionContext, LayerCache
from headway.models.experts import MixtureOfExperts
from headway.models.linear import Linear
from headway.models.mlp import FeedForward, GatedMlp
from headway.models.model import DTYPES
from headway.models.rotary import rotary_table


class LlamaLayer:
    """Attention and a gated MLP, or a mixture of experts, each after an RMS norm."""

    def __init__(
        self, spec: ModelSpec, layer: int, *, dtype: torch.dtype, device: torch.device, cos_sin: Tensor | None
    ) -> None:
        self.attention_norm = torch.empty(spec.hidden_size, dtype=dtype, device=device)
        self.attention = Attention(spec, layer, dtype=dtype, device=device, cos_sin=cos_sin)
        self.mlp_norm = torch.empty(spec.hidden_size, dtype=dtype, device=device)
        self.mlp: FeedForward
        if spec.experts is not None and spec.is_sparse(layer):
            self.mlp = MixtureOfExperts(spec, spec.experts, dtype=dtype, device=device)
        else:
            self.mlp = GatedMlp(spec, spec.intermediate_size, dtype=dtype, device=device)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield "input_layernorm.weight", self.attention_norm
        yield "post_attention_layernorm.weight", self.mlp_norm
        for name, tensor in self.attention.named_projections("o_proj"):
            yield f"self_attn.{name}", tensor
        yield from self.mlp.named("mlp")


class Llama:
    """See `headway.models.model.Model`."""

    def __init__(self, spec: ModelSpec, *, device: torch.device) -> None:
        dtype = DTYPES[spec.dtype]
        cos_sin = rotary_table(spec.rope, spec.max_position).to(device) if spec.rope else None
        self._spec = spec
        self._embedding = torch.empty(spec.vocab_size, spec.hidden_size, dtype=dtype, device=device)
        self._layers = [
            LlamaLayer(spec, layer, dtype=dtype, device=device, cos_sin=cos_sin) for layer in range(spec.num_layers)
        ]
        self._norm = torch.empty(spec.hidden_size, dtype=dtype, device=device)
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
        eps = self._spec.norm_eps
        residual = functional.embedding(token_ids, self._embedding)
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

    def compute_logits(self, hidden: Tensor) -> Tensor:
        return self._head(hidden).float()

    def tensors(self) -> dict[str, Tensor]:
        tensors = {"embed_tokens.weight": self._embedding, "norm.weight": self._norm}
        for index, layer in enumerate(self._layers):
            tensors |= {f"layers.{index}.{name}": tensor for name, tensor in layer.tensors()}
        if not self._spec.tied_embeddings:
            tensors["lm_head.weight"] = self._head.weight
        return tensors

    def linears(self) -> list[Linear]:
        linears = [self._head]
        for layer in self._layers:
            linears += [layer.attention.qkv, layer.attention.output, *layer.mlp.linears()]
        return linears
