"""Rotates queries and keys, and writes keys and values to the cache, between projection and attention."""

import torch
from torch import Tensor

from headway.kernels.dispatch import kernels_for
from headway.kernels.operands import check_caches, check_heads, check_indices, check_vector


def rotate_and_cache(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    positions: Tensor | None = None,
    cos_sin: Tensor | None = None,
    q_norm_weight: Tensor | None = None,
    k_norm_weight: Tensor | None = None,
    norm_eps: float = 1e-6,
) -> None:
    """Normalises (optional) and rotates (optional) q and k in place, head by head, and writes k and v to the cache.

    Args:
        q: [tokens, heads, head_dim], float32 or bfloat16; tokens may be strided, as views into a fused qkv row are.
        k, v: [tokens, kv_heads, head_dim], as `q`.
        k_cache, v_cache: [num_blocks, kv_heads, block_size, head_dim], float32 or bfloat16, blocks contiguous and
            keys as `cache_keys` lays them out.
        slot_mapping: [tokens] int32 or int64; slot s is place s % block_size of block s // block_size. No two alike.
            -1: another cache holds the token, and nothing of it is written here.
        positions: [tokens] int32 or int64, rows of `cos_sin`; needed with it.
        cos_sin: [max_position, rotary_dim] float32, cosines then sines; None leaves q and k unrotated. The leading
            rotary_dim elements of a head rotate, element i with i + rotary_dim / 2 (GPT-NeoX order).
        q_norm_weight, k_norm_weight: [head_dim], the dtype of `q`, of an RMS norm before the rotation.

    Raises:
        ValueError: an operand has another shape, dtype, layout or device, or holds a slot or position out of range;
            nothing was written.
    """
    num_tokens, _, head_dim = check_heads("q", q)
    num_kv_heads = check_caches(k_cache, v_cache, head_dim=head_dim, like=q)
    for name, rows in (("k", k), ("v", v)):
        if check_heads(name, rows) != (num_tokens, num_kv_heads, head_dim) or rows.dtype is not q.dtype:
            expected = f"{q.dtype} {[num_tokens, num_kv_heads, head_dim]}".removeprefix("torch.")
            raise ValueError(f"{name} must be {expected}; it is {rows.dtype} {list(rows.shape)}")
    check_indices("slot_mapping", slot_mapping, num_tokens, like=q)
    if cos_sin is not None:
        _check_rotation(cos_sin, positions, q)
    if q_norm_weight is not None:
        check_vector("q_norm_weight", q_norm_weight, head_dim, dtype=q.dtype, like=q)
    if k_norm_weight is not None:
        check_vector("k_norm_weight", k_norm_weight, head_dim, dtype=q.dtype, like=q)
    kernels_for(q).rotate_and_cache(
        q,
        k,
        v,
        k_cache=k_cache,
        v_cache=v_cache,
        slot_mapping=slot_mapping,
        positions=positions,
        cos_sin=cos_sin,
        q_norm_weight=q_norm_weight,
        k_norm_weight=k_norm_weight,
        norm_eps=norm_eps,
    )


def _check_rotation(cos_sin: Tensor, positions: Tensor | None, q: Tensor) -> None:
    if (
        cos_sin.dim() != 2
        or cos_sin.dtype is not torch.float32
        or not cos_sin.is_contiguous()
        or cos_sin.device != q.device
    ):
        raise ValueError(f"cos_sin must be a contiguous float32 matrix on {q.device}")
    rotary_dim = cos_sin.shape[1]
    if rotary_dim % 2 or rotary_dim > q.shape[2]:
        raise ValueError(f"cos_sin must have an even number of columns up to {q.shape[2]}; it has {rotary_dim}")
    if positions is None:
        raise ValueError("positions must be given with cos_sin")
    check_indices("positions", positions, q.shape[0], like=q)
