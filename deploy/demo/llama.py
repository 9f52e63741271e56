"""A Llama network for training, whose `state_dict` carries exactly Hugging Face's weight names."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.core.model import ModelSpec, RopeSpec

INIT_STD = 0.02


class RMSNorm(nn.Module):
    """Scales to unit root mean square over the last dim."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(spec.hidden_size))
        self.eps = spec.norm_eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Attention(nn.Module):
    """Causal grouped-query attention over a whole sequence, no cache."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.head_dim = spec.head_dim
        query_dim, kv_dim = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.q_proj = nn.Linear(spec.hidden_size, query_dim, bias=False)
        self.k_proj = nn.Linear(spec.hidden_size, kv_dim, bias=False)
        self.v_proj = nn.Linear(spec.hidden_size, kv_dim, bias=False)
        self.o_proj = nn.Linear(query_dim, spec.hidden_size, bias=False)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        query, key, value = (self.split_heads(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        mixed = functional.scaled_dot_product_attention(
            rotate(query, rotary), rotate(key, rotary), value, is_causal=True, enable_gqa=True
        )
        return cast("Tensor", self.o_proj(mixed.transpose(1, 2).flatten(2)))

    def split_heads(self, x: Tensor) -> Tensor:
        """[batch, length, heads * head_dim] -> [batch, heads, length, head_dim]."""
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


class MLP(nn.Module):
    """The gated feed-forward layer (SwiGLU)."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=False)
        self.up_proj = nn.Linear(spec.hidden_size, spec.intermediate_size, bias=False)
        self.down_proj = nn.Linear(spec.intermediate_size, spec.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x)))


class DecoderLayer(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(spec)
        self.self_attn = Attention(spec)
        self.post_attention_layernorm = RMSNorm(spec)
        self.mlp = MLP(spec)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotary)
        return cast("Tensor", x + self.mlp(self.post_attention_layernorm(x)))


class Decoder(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.embed_tokens = nn.Embedding(spec.vocab_size, spec.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(spec) for _ in range(spec.num_layers))
        self.norm = RMSNorm(spec)

    def forward(self, token_ids: Tensor) -> Tensor:
        assert self.spec.rope is not None
        rotary = rotary_tables(self.spec.rope, length=token_ids.shape[1])
        x = self.embed_tokens(token_ids)
        for layer in self.layers:
            x = layer(x, rotary)
        return cast("Tensor", self.norm(x))


class LlamaForCausalLM(nn.Module):
    """The network: maps token ids [batch, length] to logits [batch, length, vocab_size], float32."""

    def __init__(self, spec: ModelSpec, *, seed: int) -> None:
        super().__init__()
        self.spec = spec
        self.model = Decoder(spec)
        self.lm_head = nn.Linear(spec.hidden_size, spec.vocab_size, bias=False)
        if spec.tied_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Draw every matrix from N(0, INIT_STD); norms stay at one."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=INIT_STD, generator=generator)

    def forward(self, token_ids: Tensor) -> Tensor:
        return cast("Tensor", self.lm_head(self.model(token_ids)))

    def checkpoint_tensors(self) -> dict[str, Tensor]:
        """Weights under the names of a Hugging Face checkpoint; a tied head is left out, as there."""
        tensors = {name: tensor.detach().contiguous() for name, tensor in self.state_dict().items()}
        if self.spec.tied_embeddings:
            del tensors["lm_head.weight"]
        return tensors


def rotary_tables(rope: RopeSpec, *, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, rotary_dim] of positions 0..length-1; both halves turn alike."""
    exponents = torch.arange(0, rope.rotary_dim, 2, dtype=torch.float32) / rope.rotary_dim
    angles = torch.outer(torch.arange(length, dtype=torch.float32), rope.theta**-exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Turn heads [batch, heads, length, head_dim] by their positions; halves pair up (Hugging Face's layout)."""
    cos, sin = rotary
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
