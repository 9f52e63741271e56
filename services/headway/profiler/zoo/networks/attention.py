"""Multi-head attention, of a sequence over itself or over another."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Softmax attention with `num_heads` query heads, which may share fewer key and value heads.

    `scale` multiplies the products of queries and keys; by default it is one over the root of the heads' size.
    """

    def __init__(
        self,
        hidden: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        has_qkv_bias: bool = True,
        has_output_bias: bool = True,
        has_qk_norm: bool = False,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim or hidden // num_heads
        self.is_causal = is_causal
        self.scale = scale
        kv_heads = num_kv_heads or num_heads
        self.is_grouped = kv_heads != num_heads
        self.query = nn.Linear(hidden, num_heads * self.head_dim, bias=has_qkv_bias)
        self.key = nn.Linear(hidden, kv_heads * self.head_dim, bias=has_qkv_bias)
        self.value = nn.Linear(hidden, kv_heads * self.head_dim, bias=has_qkv_bias)
        self.query_norm = nn.RMSNorm(self.head_dim, eps=1e-6) if has_qk_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(self.head_dim, eps=1e-6) if has_qk_norm else nn.Identity()
        self.output = nn.Linear(num_heads * self.head_dim, hidden, bias=has_output_bias)

    def forward(
        self,
        x: Tensor,
        *,
        memory: Tensor | None = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Lets each position of x attend to `memory`, or to x.

        Args:
            x: [batch, seq, hidden].
            memory: [batch, memory seq, hidden].
            rotary: cosines and sines, [seq, head_dim] each.
            bias: added before the softmax, [1, num_heads, seq, memory seq].

        Returns:
            [batch, seq, hidden].
        """
        source = x if memory is None else memory
        query = self.query_norm(self._heads(self.query(x)))
        key = self.key_norm(self._heads(self.key(source)))
        if rotary is not None:
            query, key = rotate(query, *rotary), rotate(key, *rotary)
        mixed = functional.scaled_dot_product_attention(
            query,
            key,
            self._heads(self.value(source)),
            attn_mask=bias,
            is_causal=self.is_causal,
            scale=self.scale,
            enable_gqa=self.is_grouped,
        )
        return self.output(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _heads(self, x: Tensor) -> Tensor:
        """Reshapes [batch, seq, heads * head_dim] to [batch, heads, seq, head_dim]."""
        return x.view(*x.shape[:-1], -1, self.head_dim).transpose(1, 2)


def rotary_table(seq: int, head_dim: int, *, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles by which positions 0 to seq - 1 are rotated, [seq, head_dim] each."""
    dims = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device)
    angles = torch.outer(torch.arange(seq, dtype=torch.float32, device=device), base ** (-dims / head_dim))
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the halves of each head of x, [batch, heads, seq, head_dim], against each other."""
    first, second = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat((-second, first), dim=-1) * sin.to(x.dtype)
