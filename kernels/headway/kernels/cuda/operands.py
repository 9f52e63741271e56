"""Checks of what only the CUDA kernels take: the compiled code trusts what passes here.

Every function raises ValueError, naming the argument, what it must be and what it is.
"""

import torch
from torch import Tensor

from headway.kernels.cache import are_rows
from headway.kernels.operands import (
    check_like,
    check_matrix,
    check_result,
    check_result_heads,
    check_vector,
    reject,
)

QUERIES = frozenset({torch.float32, torch.bfloat16, torch.float16})
CACHES = frozenset({torch.bfloat16, torch.float16, torch.float8_e4m3fn})
MAX_HEAD_DIM = 256
HEAD_DIM_MULTIPLE = 16
BLOCK_SIZES = (8, 128)
ALIGNMENT_BYTES = 16
MAX_CACHE_BYTES = 1 << 36  # 32 bits count them in pieces of 16: csrc/cuda/decode_stages.h
MAX_GRID_HEIGHT = 65535  # CTAs in a launch's second dimension
ROW_MULTIPLE = 8  # numbers that a thread reads and writes at a time: csrc/cuda/norm.cu, activation.cu


def is_aligned(tensor: Tensor, *strides: int, num_bytes: int = ALIGNMENT_BYTES) -> bool:
    """True if the data, and what lies multiples of the strides from its beginning, is aligned to `num_bytes`.

    While `torch.compile` looks on there is no address, and it is trusted.
    """
    offsets = [stride * tensor.itemsize for stride in strides]
    if not torch.compiler.is_compiling():
        offsets.append(tensor.data_ptr())
    return all(offset % num_bytes == 0 for offset in offsets)


def check_heads(name: str, tensor: Tensor, *, alignment_bytes: int = ALIGNMENT_BYTES) -> tuple[int, int, int]:
    """[rows, heads, head_dim] of float32, bfloat16 or float16, a row's heads contiguous; returns the shape."""
    shape, strides = tensor.shape, tensor.stride()
    if len(shape) != 3 or strides[2] != 1 or (strides[1] != shape[2] and shape[1] > 1):
        reject(name, tensor, "[rows, heads, head_dim] with a row's heads contiguous")
    if strides[0] < shape[1] * shape[2] and shape[0] > 1:
        reject(name, tensor, "of rows that do not overlap")
    if tensor.dtype not in QUERIES:
        reject(name, tensor, "float32, bfloat16 or float16")
    if not is_aligned(tensor, strides[0] if shape[0] > 1 else 0, shape[2], num_bytes=alignment_bytes):
        reject(name, tensor, f"of rows and heads that begin at multiples of {alignment_bytes} bytes")
    return shape[0], shape[1], shape[2]


def check_caches(
    k_cache: Tensor, v_cache: Tensor, *, head_dim: int, like: Tensor, dtypes: frozenset[torch.dtype] = CACHES
) -> int:
    """Both [blocks, kv_heads, block_size, head_dim] of one dtype, blocks contiguous, in rows; returns kv_heads."""
    shape = k_cache.shape
    if len(shape) != 4 or shape[3] != head_dim:
        reject("k_cache", k_cache, f"[num_blocks, num_kv_heads, block_size, {head_dim}]")
    if k_cache.dtype not in dtypes or k_cache.device != like.device:
        names = sorted(str(dtype).removeprefix("torch.") for dtype in dtypes)
        reject("k_cache", k_cache, f"{', '.join(names[:-1])} or {names[-1]} on {like.device}")
    if not BLOCK_SIZES[0] <= shape[2] <= BLOCK_SIZES[1]:
        reject("k_cache", k_cache, f"of blocks of {BLOCK_SIZES[0]} to {BLOCK_SIZES[1]} tokens")
    if shape[1] > MAX_GRID_HEIGHT:
        reject("k_cache", k_cache, f"of at most {MAX_GRID_HEIGHT} heads")
    check_like("v_cache", v_cache, k_cache)
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        if not are_rows(cache):
            reject(name, cache, "contiguous within a block")
        if not is_aligned(cache, cache.stride(0)):
            reject(name, cache, f"of blocks that begin at multiples of {ALIGNMENT_BYTES} bytes")
    return shape[1]


def check_attention(
    q: Tensor,
    *,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    alibi_slopes: Tensor | None,
) -> None:
    """Checks what decode and prefill attention read, apart from what says which keys a query sees."""
    _, num_heads, head_dim = check_heads("q", q)
    if head_dim > MAX_HEAD_DIM or head_dim % HEAD_DIM_MULTIPLE:
        reject("q", q, f"of a head_dim of a multiple of {HEAD_DIM_MULTIPLE} up to {MAX_HEAD_DIM}")
    num_kv_heads = check_caches(k_cache, v_cache, head_dim=head_dim, like=q, dtypes=CACHES | {q.dtype})
    check_group(num_heads, num_kv_heads=num_kv_heads)
    if block_tables.dim() != 2 or block_tables.dtype is not torch.int32 or block_tables.device != q.device:
        reject("block_tables", block_tables, f"an int32 matrix on {q.device}")
    if block_tables.stride(1) != 1 and block_tables.shape[1] > 1:
        reject("block_tables", block_tables, "of contiguous rows")
    if alibi_slopes is not None:
        check_vector("alibi_slopes", alibi_slopes, num_heads, dtype=torch.float32, like=q)


def check_group(num_heads: int, *, num_kv_heads: int) -> None:
    if num_kv_heads == 0 or num_heads % num_kv_heads:
        raise ValueError(f"q must have a multiple of {num_kv_heads} heads, as k_cache has; it has {num_heads}")


def check_extent(name: str, cache: Tensor) -> None:
    """Checks that decode attention can address the blocks."""
    num_bytes = ((cache.shape[0] - 1) * cache.stride(0) + cache[:1].numel()) * cache.itemsize
    if num_bytes > MAX_CACHE_BYTES:
        reject(name, cache, f"of blocks within {MAX_CACHE_BYTES >> 30} GiB; they take {num_bytes / (1 << 30):.1f}")


def check_results(q: Tensor, *, out: Tensor | None, lse: Tensor | None) -> Tensor:
    """`out`, or a new tensor like `q` if None: shaped as `q`, in its dtype or float32; `lse`: [rows, heads] float32."""
    if out is None:
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
    else:
        dtype = torch.float32 if out.dtype is torch.float32 else q.dtype
        check_result_heads("out", out, dtype=dtype, shape=q.shape, like=q)
    if lse is not None:
        check_result("lse", lse, dtype=torch.float32, shape=q.shape[:2], like=q)
    return out


def check_scales(*, key_scale: float, value_scale: float, soft_cap: float | None) -> None:
    for name, factor in (("key_scale", key_scale), ("value_scale", value_scale), ("soft_cap", soft_cap)):
        if factor is not None:
            check_scale(name, factor)


def check_rows(name: str, tensor: Tensor) -> tuple[int, int]:
    """[rows, columns] of float32, bfloat16 or float16, rows contiguous and of whole multiples of 16 bytes."""
    shape = check_matrix(name, tensor, dtypes=QUERIES)
    if shape[1] % ROW_MULTIPLE or not is_aligned(tensor, tensor.stride(0) if shape[0] > 1 else 0):
        reject(name, tensor, f"of a multiple of {ROW_MULTIPLE} columns, in rows that begin at multiples of 16 bytes")
    return shape


def check_scale(name: str, scale: float) -> None:
    if not 0 < scale < float("inf"):
        raise ValueError(f"{name} must be a positive number; it is {scale}")


def check_swap(blocks: Tensor, host_blocks: Tensor, pairs: Tensor, *, is_out: bool) -> None:
    """Checks those operands of a swap that only a tensor with content tells."""
    if blocks.is_cuda and not host_blocks.is_pinned():
        reject("host_blocks", host_blocks, "in pinned memory")
    limits = [blocks.shape[1], host_blocks.shape[0]]
    if not is_out:
        limits.reverse()
    if ((pairs < 0) | (pairs >= torch.tensor(limits))).any():
        raise ValueError(f"pairs must lie below {limits}; they are {pairs.tolist()}")
