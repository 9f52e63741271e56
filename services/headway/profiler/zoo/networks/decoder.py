"""The decoder that a spec describes, as a plain torch module: what the zoo has, and what is captured and trained of a
checkpoint. `headway.models` serves the same spec and tensors, its keys and values in blocks and its operators fused."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.core.errors import InvalidArgumentError
from headway.core.model import ExpertsSpec, ModelFamily, ModelSpec
from headway.profiler.zoo.networks.attention import Attention, rotary_table
from headway.profiler.zoo.networks.experts import GatheredExperts, SharedExperts
from headway.profiler.zoo.networks.feed_forward import GatedMlp
from headway.profiler.zoo.networks.transformer import Layer, PostNormLayer

_ACTIVATIONS = {"relu": nn.ReLU(), "gelu": nn.GELU(), "gelu_tanh": nn.GELU(approximate="tanh"), "silu": nn.SiLU()}
_OPT_POSITION_OFFSET = 2


class Decoder(nn.Module):
    """A decoder of the Llama, OPT or GPT-2 kind. Attention windows and scaled rotations cost as full and plain ones.

    Args:
        capacity_factor: of experts; see `GatheredExperts`.

    Raises:
        InvalidArgumentError: the checkpoint is an encoder.
    """

    def __init__(self, spec: ModelSpec, *, capacity_factor: float = 1.0) -> None:
        if spec.encoder is not None:
            raise InvalidArgumentError(
                f"{spec.architecture} is an encoder, which is not captured from a checkpoint.",
                hint="Capture zoo:bert-base, or your own module:factory.",
                field="source",
            )
        super().__init__()
        self.spec = spec
        width = spec.embedding_dim or spec.hidden_size
        self.tokens = nn.Embedding(spec.vocab_size, width)
        self.positions = None if spec.rope else nn.Embedding(_num_positions(spec), spec.hidden_size)
        self.project_in = _projection(width, spec.hidden_size)
        self.layers = nn.ModuleList(_layer(spec, index, capacity_factor) for index in range(spec.num_layers))
        self.norm = _norm(spec) if spec.final_norm else nn.Identity()
        self.project_out = _projection(spec.hidden_size, width)
        self.head = nn.Linear(width, spec.vocab_size, bias=False)
        if spec.tied_embeddings:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps ids [batch, seq] to logits [batch, seq, vocabulary]."""
        rotary, seq = None, tokens.shape[1]
        if self.spec.rope is not None:
            rotary = rotary_table(seq, self.spec.head_dim, base=self.spec.rope.theta, device=tokens.device)
        x = self.project_in(self.tokens(tokens))
        if self.positions is not None:
            x = x + self.positions(torch.arange(seq, device=tokens.device))
        for index, layer in enumerate(self.layers):
            x = layer(x, rotary=rotary) if self.spec.rotates(index) else layer(x)
        x = self.project_out(self.norm(x))
        if self.spec.tied_embeddings:
            return functional.linear(x, self.head.weight)
        return self.head(x)  # type: ignore[no-any-return]


def _num_positions(spec: ModelSpec) -> int:
    return spec.max_position + (_OPT_POSITION_OFFSET if spec.family is ModelFamily.OPT else 0)


def _projection(width: int, hidden: int) -> nn.Module:
    return nn.Identity() if width == hidden else nn.Linear(width, hidden, bias=False)


def _norm(spec: ModelSpec) -> nn.Module:
    norm = nn.RMSNorm if spec.family is ModelFamily.LLAMA else nn.LayerNorm
    return norm(spec.hidden_size, eps=spec.norm_eps)


def _layer(spec: ModelSpec, index: int, capacity_factor: float) -> nn.Module:
    attention = Attention(
        spec.hidden_size,
        spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        has_qkv_bias=spec.attention_bias,
        has_output_bias=spec.attention_output_bias,
        has_qk_norm=spec.qk_norm,
        is_causal=True,
    )
    layer = Layer if spec.pre_norm else PostNormLayer
    return layer(attention, _feed_forward(spec, index, capacity_factor), norms=(_norm(spec), _norm(spec)))


def _feed_forward(spec: ModelSpec, index: int, capacity_factor: float) -> nn.Module:
    if spec.experts is not None and spec.is_sparse(index):
        return _experts(spec.hidden_size, spec.experts, capacity_factor)
    hidden, inner = spec.hidden_size, spec.intermediate_size
    if spec.family is ModelFamily.LLAMA:
        return GatedMlp(hidden, inner, activation="silu", has_bias=spec.mlp_bias)
    return nn.Sequential(
        nn.Linear(hidden, inner, bias=spec.mlp_bias),
        _ACTIVATIONS[spec.activation],
        nn.Linear(inner, hidden, bias=spec.mlp_bias),
    )


def _experts(hidden: int, experts: ExpertsSpec, capacity_factor: float) -> nn.Module:
    routed = GatheredExperts(
        hidden,
        experts.intermediate_size,
        num_experts=experts.num_experts,
        num_chosen=experts.num_experts_per_tok,
        is_normalized=experts.is_normalized,
        capacity_factor=capacity_factor,
    )
    inner = experts.shared_intermediate_size
    return SharedExperts(hidden, routed, inner=inner) if inner else routed
