"""Copies of whole blocks of a cache: within a device, and between it and the host."""

import torch
from torch import Tensor

from headway.kernels.cuda import blocks as cuda
from headway.kernels.devices import KernelSet, kernel_set, to_device
from headway.kernels.operands import reject


def copy_blocks(blocks: Tensor, *, pairs: Tensor) -> None:
    """Copies blocks to others of the same cache, in all layers, keys and values.

    Args:
        blocks: [layers, 2, num_blocks, ...], contiguous: the memory of a `KvPool`.
        pairs: [n, 2] int64 on the CPU: (from, to). No block is both, and none is written twice.

    Raises:
        ValueError: an operand has another shape, dtype or device, or there is no such block; nothing was copied.
    """
    _check_pairs(pairs, (blocks.shape[2], blocks.shape[2]))
    if kernel_set(blocks.device) is KernelSet.CUDA:
        cuda.copy_blocks(blocks, pairs=to_device(pairs, blocks.device))
        return
    for source, target in pairs.tolist():
        blocks[:, :, target].copy_(blocks[:, :, source])


def swap_blocks(blocks: Tensor, host_blocks: Tensor, *, pairs: Tensor, is_out: bool) -> None:
    """Copies blocks to the host, or back. On a GPU they are under way when this returns, in the current stream's order.

    Args:
        blocks: [layers, 2, num_blocks, ...], contiguous: the memory of a `KvPool`.
        host_blocks: [num_host_blocks, layers, 2, ...], contiguous; pinned where `blocks` are on a GPU.
        pairs: [n, 2] int64 on the CPU: (from, to). No two write one block.
        is_out: to the host.

    Raises:
        ValueError: an operand has another shape, dtype, layout or device, or there is no such block; nothing was
            copied.
    """
    if kernel_set(blocks.device) is KernelSet.CUDA:
        cuda.swap_blocks(blocks, host_blocks, pairs=pairs, is_out=is_out)
        return
    limits = (blocks.shape[2], len(host_blocks))
    _check_pairs(pairs, limits if is_out else limits[::-1])
    for source, target in pairs.tolist():
        if is_out:
            host_blocks[target].copy_(blocks[:, :, source])
        else:
            blocks[:, :, target].copy_(host_blocks[source])


def _check_pairs(pairs: Tensor, limits: tuple[int, int]) -> None:
    is_list = pairs.dim() == 2 and pairs.shape[1] == 2 and pairs.is_contiguous()
    if not is_list or pairs.dtype is not torch.int64 or not pairs.is_cpu:
        reject("pairs", pairs, "int64 [n, 2], contiguous, on cpu")
    if ((pairs < 0) | (pairs >= torch.tensor(limits))).any():
        raise ValueError(f"pairs must lie below {list(limits)}; they are {pairs.tolist()}")
