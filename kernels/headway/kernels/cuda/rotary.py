"""Rotates queries and keys, and writes keys and values to the cache, between projection and attention."""

import torch
from torch import Tensor

from headway.kernels.cuda import operators
from headway.kernels.cuda.operands import CACHES, MAX_HEAD_DIM, check_caches, check_heads, check_scale
from headway.kernels.operands import check_indices, check_vector, reject

MAX_SLOTS = 1 << 31  # what 32 bits hold: csrc/cuda/rotate_and_cache.cu


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
    key_scale: float = 1.0,
    value_scale: float = 1.0,
) -> None:
    """Normalises (optional) and rotates (optional) q and k in place, head by head, and writes k and v to the cache.

    Args:
        q: [tokens, heads, head_dim], float32, bfloat16 or float16; tokens may be strided. head_dim is at most 256.
        k, v: [tokens, kv_heads, head_dim], as `q`.
        k_cache, v_cache: [num_blocks, kv_heads, block_size, head_dim], bfloat16, float16, float8_e4m3fn or, with `q`,
            float32; blocks contiguous, keys in rows as `cache_keys` lays them out. What is written is divided by its
            scale; what fp8 cannot hold becomes its largest number.
        slot_mapping: [tokens] int32 or int64; slot s is place s % block_size of block s // block_size. No two alike.
            -1: another cache holds the token, and nothing of it is written here.
        positions: [tokens] int32 or int64, rows of `cos_sin`; needed with it. Neither these nor the slots are checked
            against their range: that would wait for the device.
        cos_sin: [max_position, rotary_dim] float32, cosines then sines; None leaves q and k unrotated. The leading
            rotary_dim elements of a head rotate, element i with i + rotary_dim / 2 (GPT-NeoX order).
        q_norm_weight, k_norm_weight: [head_dim], the dtype of `q`, of an RMS norm before the rotation.

    Raises:
        ValueError: an operand has another shape, dtype, layout or device; nothing was written.
    """
    _check_queries(q)
    num_tokens, _, head_dim = q.shape
    num_kv_heads = check_caches(k_cache, v_cache, head_dim=head_dim, like=q, dtypes=CACHES | {q.dtype})
    if k_cache.shape[0] * k_cache.shape[2] > MAX_SLOTS:
        reject("k_cache", k_cache, f"of room for at most {MAX_SLOTS} tokens")
    for name, rows in (("k", k), ("v", v)):
        _check_rows(name, rows, num_heads=num_kv_heads, like=q)
    check_indices("slot_mapping", slot_mapping, num_tokens, like=q)
    if cos_sin is not None:
        _check_rotation(cos_sin, positions, q)
    _check_norms(q, q_norm_weight, k_norm_weight)
    for name, factor in (("key_scale", key_scale), ("value_scale", value_scale)):
        check_scale(name, factor)
    operators.rotate_and_cache(
        q,
        k,
        v,
        k_cache,
        v_cache,
        slot_mapping,
        positions,
        cos_sin,
        q_norm_weight,
        k_norm_weight,
        norm_eps,
        key_scale,
        value_scale,
    )


def rotate(
    q: Tensor,
    k: Tensor,
    *,
    positions: Tensor,
    cos_sin: Tensor,
    q_norm_weight: Tensor | None = None,
    k_norm_weight: Tensor | None = None,
    norm_eps: float = 1e-6,
) -> None:
    """Normalises and rotates q and k as `rotate_and_cache`, where there is no cache to write to.

    Raises:
        ValueError: an operand has another shape, dtype, layout or device; nothing was written.
    """
    _check_queries(q)
    _check_rows("k", k, num_heads=None, like=q)
    _check_rotation(cos_sin, positions, q)
    _check_norms(q, q_norm_weight, k_norm_weight)
    operators.rotate(q, k, positions, cos_sin, q_norm_weight, k_norm_weight, norm_eps)


def _check_queries(q: Tensor) -> None:
    _, _, head_dim = check_heads("q", q, alignment_bytes=q.itemsize)
    if head_dim > MAX_HEAD_DIM:
        reject("q", q, f"of a head_dim of at most {MAX_HEAD_DIM}")


def _check_rows(name: str, rows: Tensor, *, num_heads: int | None, like: Tensor) -> None:
    """Checks that rows are as q, with `num_heads` heads, or any number if None."""
    shape = check_heads(name, rows, alignment_bytes=rows.itemsize)
    expected = (like.shape[0], shape[1] if num_heads is None else num_heads, like.shape[2])
    if shape != expected or rows.dtype is not like.dtype or rows.device != like.device:
        heads = "kv_heads" if num_heads is None else num_heads
        dtype = str(like.dtype).removeprefix("torch.")
        reject(name, rows, f"{dtype} [{expected[0]}, {heads}, {expected[2]}] on {like.device}")


def _check_norms(q: Tensor, q_norm_weight: Tensor | None, k_norm_weight: Tensor | None) -> None:
    for name, weight in (("q_norm_weight", q_norm_weight), ("k_norm_weight", k_norm_weight)):
        if weight is not None:
            check_vector(name, weight, q.shape[2], dtype=q.dtype, like=q)


def _check_rotation(cos_sin: Tensor, positions: Tensor | None, q: Tensor) -> None:
    if positions is None:
        raise ValueError("positions must be given with cos_sin")
    check_indices("positions", positions, q.shape[0], like=q)
    if cos_sin.dim() != 2 or cos_sin.dtype is not torch.float32 or not cos_sin.is_contiguous():
        reject("cos_sin", cos_sin, "a contiguous float32 matrix")
    if cos_sin.shape[1] % 2 or cos_sin.shape[1] > q.shape[2] or cos_sin.device != q.device:
        reject("cos_sin", cos_sin, f"of an even number of columns up to {q.shape[2]}, on {q.device}")
