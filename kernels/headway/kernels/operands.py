"""Checks of the kernels' operands: the compiled code trusts what passes here. Each costs well under a microsecond.

Every function raises ValueError, naming the argument, what it must be and what it is.
"""

from typing import NoReturn

import torch
from torch import Tensor

from headway.kernels.cache import are_rows
from headway.kernels.devices import KernelSet, kernel_set

_CPU_FLOATS = frozenset({torch.float32, torch.bfloat16})
INDICES = frozenset({torch.int32, torch.int64})
MAX_HEAD_DIM = 512


def reject(name: str, tensor: Tensor, expected: str) -> NoReturn:
    """The error of an operand that is not what it must be."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    raise ValueError(
        f"{name} must be {expected}; it is {dtype} {list(tensor.shape)} with strides {list(tensor.stride())} "
        f"on {tensor.device}"
    )


def floats_on(device: torch.device) -> frozenset[torch.dtype]:
    """The float dtypes that kernels compute with on a device: float16 on no CPU."""
    return _CPU_FLOATS if kernel_set(device) is KernelSet.CPU else _CPU_FLOATS | {torch.float16}


def names_of(dtypes: frozenset[torch.dtype]) -> str:
    return " or ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


def check_matrix(name: str, tensor: Tensor, *, dtypes: frozenset[torch.dtype] | None = None) -> tuple[int, int]:
    """[rows, columns] of one of the dtypes, None: those of its device; each row contiguous; returns the shape."""
    dtypes = floats_on(tensor.device) if dtypes is None else dtypes
    shape, strides = tensor.shape, tensor.stride()
    if len(shape) != 2 or strides[1] != 1 or (strides[0] < shape[1] and shape[0] > 1):
        reject(name, tensor, "a matrix of contiguous rows")
    if tensor.dtype not in dtypes:
        reject(name, tensor, names_of(dtypes))
    return shape[0], shape[1]


def check_heads(name: str, tensor: Tensor) -> tuple[int, int, int]:
    """[tokens, heads, head_dim] of a dtype of the device, a token's heads contiguous; returns the shape."""
    shape, strides = tensor.shape, tensor.stride()
    if len(shape) != 3 or strides[2] != 1 or (strides[1] != shape[2] and shape[1] > 1):
        reject(name, tensor, "[tokens, heads, head_dim] with a token's heads contiguous")
    if strides[0] < shape[1] * shape[2] and shape[0] > 1:
        reject(name, tensor, "tokens that do not overlap")
    dtypes = floats_on(tensor.device)
    if tensor.dtype not in dtypes or shape[2] > MAX_HEAD_DIM:
        reject(name, tensor, f"{names_of(dtypes)} with head_dim up to {MAX_HEAD_DIM}")
    return shape[0], shape[1], shape[2]


def check_result(name: str, tensor: Tensor, *, dtype: torch.dtype, shape: tuple[int, ...], like: Tensor) -> None:
    """`dtype` and `shape` on the device of `like`, in any strides that keep the elements apart."""
    if tensor.dtype is not dtype or tensor.shape != shape or tensor.device != like.device:
        reject(name, tensor, f"{dtype} {list(shape)} on {like.device}".removeprefix("torch."))
    extent = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if stride < extent and size > 1:
            reject(name, tensor, "of elements that do not overlap")
        extent += stride * (size - 1)


def check_result_heads(name: str, tensor: Tensor, *, dtype: torch.dtype, shape: tuple[int, ...], like: Tensor) -> None:
    """Checks as `check_result`, and that each head is contiguous."""
    check_result(name, tensor, dtype=dtype, shape=shape, like=like)
    if tensor.stride(-1) != 1 and shape[-1] > 1:
        reject(name, tensor, "of contiguous heads")


def check_vector(name: str, tensor: Tensor, length: int, *, dtype: torch.dtype, like: Tensor) -> None:
    """Contiguous [length] of `dtype`, on the device of `like`."""
    if (
        tensor.shape != (length,)
        or tensor.dtype is not dtype
        or not tensor.is_contiguous()
        or tensor.device != like.device
    ):
        reject(name, tensor, f"{dtype} [{length}], contiguous, on {like.device}".removeprefix("torch."))


def check_indices(name: str, tensor: Tensor, length: int, *, like: Tensor) -> None:
    """Contiguous [length] of int32 or int64, on the device of `like`."""
    if tensor.dtype not in INDICES:
        reject(name, tensor, "int32 or int64")
    check_vector(name, tensor, length, dtype=tensor.dtype, like=like)


def check_spans(name: str, tensor: Tensor, length: int, *, like: Tensor) -> None:
    """Contiguous [length, 2] of int32, on the device of `like`."""
    if (
        tensor.shape != (length, 2)
        or tensor.dtype is not torch.int32
        or not tensor.is_contiguous()
        or tensor.device != like.device
    ):
        reject(name, tensor, f"int32 [{length}, 2], contiguous, on {like.device}")


def check_partials(name: str, tensor: Tensor) -> tuple[int, int, int]:
    """[shards, tokens, heads, head_dim + 1] of float32, rows contiguous; returns [tokens, heads, head_dim]."""
    shape = tensor.shape
    if len(shape) != 4 or shape[0] == 0 or tensor.stride(3) != 1:
        reject(name, tensor, "[shards, tokens, heads, head_dim + 1] of contiguous rows and at least one shard")
    if tensor.dtype is not torch.float32 or not 1 <= shape[3] <= MAX_HEAD_DIM + 1:
        reject(name, tensor, f"float32 with head_dim up to {MAX_HEAD_DIM}")
    return shape[1], shape[2], shape[3] - 1


def check_like(name: str, tensor: Tensor, like: Tensor) -> None:
    """The dtype, shape and device of `like`."""
    if tensor.dtype is not like.dtype or tensor.shape != like.shape or tensor.device != like.device:
        dtype = str(like.dtype).removeprefix("torch.")
        reject(name, tensor, f"{dtype} {list(like.shape)} on {like.device}")


def check_caches(k_cache: Tensor, v_cache: Tensor, *, head_dim: int, like: Tensor) -> int:
    """Both [blocks, kv_heads, block_size, head_dim] of one dtype, laid out as `cache_keys` says; returns kv_heads."""
    shape = k_cache.shape
    if len(shape) != 4 or shape[3] != head_dim:
        reject("k_cache", k_cache, f"[num_blocks, num_kv_heads, block_size, {head_dim}]")
    if k_cache.dtype not in floats_on(like.device) or k_cache.device != like.device:
        reject("k_cache", k_cache, f"{names_of(floats_on(like.device))} on {like.device}")
    check_like("v_cache", v_cache, k_cache)
    if not are_rows(v_cache):
        reject("v_cache", v_cache, "contiguous within a block")
    if kernel_set(like.device) is KernelSet.CPU:
        if not are_rows(k_cache.mT):
            reject("k_cache", k_cache, "contiguous within a block, with the keys of a head transposed")
    elif not are_rows(k_cache):
        reject("k_cache", k_cache, "contiguous within a block")
    return shape[1]
