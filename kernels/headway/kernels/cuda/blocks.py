"""Copies of whole blocks of a cache: within a device, and between it and the host."""

import torch
from torch import Tensor

from headway.kernels.cuda import operators
from headway.kernels.cuda.operands import ALIGNMENT_BYTES, MAX_GRID_HEIGHT, is_aligned
from headway.kernels.operands import reject


def copy_blocks(blocks: Tensor, *, pairs: Tensor) -> None:
    """Copies blocks to others of the same cache, for all layers, keys and values in one launch.

    Args:
        blocks: [layers, 2, num_blocks, ...], contiguous, of any dtype: the memory of a `KvPool`.
        pairs: [n, 2] int64 on the device of `blocks`: (from, to). No block is both, and none is written twice; that
            and their range are not checked, which would wait for the device.

    Raises:
        ValueError: an operand has another shape, dtype, layout or device.
    """
    planes = _planes_of(blocks)
    _check_pairs(pairs, blocks.device)
    operators.copy_blocks(planes, pairs)


def swap_blocks(blocks: Tensor, host_blocks: Tensor, *, pairs: Tensor, is_out: bool) -> None:
    """Starts to copy blocks from the device to the host, or back, all layers, keys and values.

    A kernel does it, in the order of the current stream: wait for that before the host reads.

    Args:
        blocks: [layers, 2, num_blocks, ...], contiguous, of any dtype: the memory of a `KvPool`.
        host_blocks: [num_host_blocks, layers, 2, ...], contiguous, as `blocks`; pinned where that is on a GPU.
        pairs: [n, 2] int64 on the CPU: (from, to). No two write one block.
        is_out: from the device to the host.

    Raises:
        ValueError: an operand has another shape, dtype, layout or device, or there is no such block; nothing was
            copied.
    """
    planes = _planes_of(blocks)
    num_host_blocks = host_blocks.shape[0] if host_blocks.dim() else 0
    block_shape = (*blocks.shape[:2], *blocks.shape[3:])
    is_alike = host_blocks.shape[1:] == block_shape and host_blocks.dtype is blocks.dtype
    if not is_alike or not host_blocks.is_contiguous():
        dtype = str(blocks.dtype).removeprefix("torch.")
        reject("host_blocks", host_blocks, f"{dtype} [num_host_blocks, {str(list(block_shape))[1:]}, contiguous")
    if not host_blocks.is_cpu or not is_aligned(host_blocks):
        reject("host_blocks", host_blocks, f"in memory of the host, at a multiple of {ALIGNMENT_BYTES} bytes")
    _check_pairs(pairs, torch.device("cpu"))
    shape = (num_host_blocks, planes.shape[0], planes.shape[2])
    operators.swap_blocks(
        planes, host_blocks.view(num_host_blocks, -1).view(torch.uint8).view(shape), pairs, is_out=is_out
    )


def _planes_of(blocks: Tensor) -> Tensor:
    """[planes, num_blocks, bytes of a block] uint8."""
    if blocks.dim() < 4 or not blocks.is_contiguous():
        reject("blocks", blocks, "[layers, 2, num_blocks, ...], contiguous")
    block_numbers = blocks.stride(2)
    if not is_aligned(blocks, block_numbers):
        reject("blocks", blocks, f"of blocks of a multiple of {ALIGNMENT_BYTES} bytes")
    num_planes, num_blocks = blocks.shape[0] * blocks.shape[1], blocks.shape[2]
    if num_planes > MAX_GRID_HEIGHT:
        reject("blocks", blocks, f"of at most {MAX_GRID_HEIGHT} layers times two")
    return blocks.view(torch.uint8).view(num_planes, num_blocks, block_numbers * blocks.itemsize)


def _check_pairs(pairs: Tensor, device: torch.device) -> None:
    is_list = pairs.dim() == 2 and pairs.shape[1] == 2 and pairs.is_contiguous()
    if not is_list or pairs.dtype is not torch.int64 or pairs.device != device:
        reject("pairs", pairs, f"int64 [n, 2], contiguous, on {device}")
