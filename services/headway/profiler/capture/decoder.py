"""The network that a checkpoint's `config.json` describes, as a plain torch module of the same tensors."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.core.errors import InvalidArgumentError
from headway.core.model import ModelFamily, ModelSpec
from headway.profiler.zoo.families.llama import ExpertsConfig
from headway.profiler.zoo.networks.attention import Attention, rotary_table
from headway.profiler.zoo.networks.experts import GatheredExperts
from headway.profiler.zoo.networks.feed_forward import GatedMlp
from headway.profiler.zoo.networks.llama import SharedExperts
from headway.profiler.zoo.networks.transformer import Layer, PostNormLayer

_ACTIVATIONS = {"relu": nn.ReLU(), "gelu": nn.GELU(), "gelu_tanh": nn.GELU(approximate="tanh"), "silu": nn.SiLU()}
_OPT_POSITION_OFFSET = 2


class Decoder(nn.Module):
    """A decoder of the Llama, OPT or GPT-2 kind. Attention windows and scaled rotations cost as full and plain ones.

    Raises:
        InvalidArgumentError: the checkpoint is an encoder.
    """

    def __init__(self, spec: ModelSpec) -> None:
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
        self.layers = nn.ModuleList(_layer(spec, index) for index in range(spec.num_layers))
        self.norm = _norm(spec) if spec.final_norm else nn.Identity()
        self.project_out = _projection(spec.hidden_size, width)
        self.head = nn.Linear(width, spec.vocab_size, bias=False)
        if spec.tied_embeddings:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps ids [batch, seq] to logits [batch, seq, vocabulary]."""
        x, rotary, seq = self.project_in(self.tokens(tokens)), None, tokens.shape[1]
        if self.positions is not None:
            x = x + self.positions(torch.arange(seq, device=tokens.device))
        if self.spec.rope is not None:
            rotary = rotary_table(seq, self.spec.head_dim, base=self.spec.rope.theta, device=tokens.device)
        for index, layer in enumerate(self.layers):
            x = layer(x, rotary=rotary) if self.spec.rotates(index) else layer(x)
        return functional.linear(self.project_out(self.norm(x)), self.head.weight)


def _num_positions(spec: ModelSpec) -> int:
    return spec.max_position + (_OPT_POSITION_OFFSET if spec.family is ModelFamily.OPT else 0)


def _projection(width: int, hidden: int) -> nn.Module:
    return nn.Identity() if width == hidden else nn.Linear(width, hidden, bias=False)


def _norm(spec: ModelSpec) -> nn.Module:
    norm = nn.RMSNorm if spec.family is ModelFamily.LLAMA else nn.LayerNorm
    return norm(spec.hidden_size, eps=spec.norm_eps)


def _layer(spec: ModelSpec, index: int) -> nn.Module:
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
    return layer(attention, _feed_forward(spec, index), norms=(_norm(spec), _norm(spec)))


def _feed_forward(spec: ModelSpec, index: int) -> nn.Module:
    if spec.is_sparse(index):
        return _experts(spec)
    hidden, inner = spec.hidden_size, spec.intermediate_size
    if spec.family is ModelFamily.LLAMA:
        return GatedMlp(hidden, inner, activation="silu", has_bias=spec.mlp_bias)
    return nn.Sequential(
        nn.Linear(hidden, inner, bias=spec.mlp_bias),
        _ACTIVATIONS[spec.activation],
        nn.Linear(inner, hidden, bias=spec.mlp_bias),
    )


def _experts(spec: ModelSpec) -> nn.Module:
    experts = spec.experts
    assert experts is not None
    config = ExpertsConfig(
        num_experts=experts.num_experts,
        num_experts_per_token=experts.num_experts_per_tok,
        inner=experts.intermediate_size,
        shared_inner=experts.shared_intermediate_size,
        is_normalized=experts.is_normalized,
    )
    if config.shared_inner:
        return SharedExperts(spec.hidden_size, config)
    return GatheredExperts(
        spec.hidden_size,
        config.inner,
        num_experts=config.num_experts,
        num_chosen=config.num_experts_per_token,
        is_normalized=config.is_normalized,
        capacity_factor=config.capacity_factor,
    )
