"""Calls of the compiled cache kernels. Operands were checked before, but for what `torch.compile` cannot know."""

from struct import Struct

import torch
from torch import Tensor

from headway.kernels.cuda.library import DTYPE_CODES, CudaLibrary, address_of, stream_of
from headway.kernels.cuda.operands import check_swap

# The operand structs of csrc/cuda, field by field: q an integer, P a pointer (0: none), d a double.
_pack_rotary = Struct("2q Pq Pq Pq 4q Pq Pq q Pq Pq Pq 2P 3d q").pack
_pack_copy = Struct("P3q Pq q").pack
_pack_swap = Struct("P3q Pq q Pq q").pack


class CacheCalls(CudaLibrary):
    """Writes to a cache's blocks, and copies of blocks."""

    def rotate_and_cache(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        slot_mapping: Tensor,
        positions: Tensor | None,
        cos_sin: Tensor | None,
        q_norm_weight: Tensor | None,
        k_norm_weight: Tensor | None,
        norm_eps: float,
        key_scale: float,
        value_scale: float,
    ) -> None:
        num_tokens, num_heads, head_dim = q.shape
        problem = _pack_rotary(
            DTYPE_CODES[q.dtype],
            DTYPE_CODES[k_cache.dtype],
            q.data_ptr(),
            q.stride(0),
            k.data_ptr(),
            k.stride(0),
            v.data_ptr(),
            v.stride(0),
            num_tokens,
            num_heads,
            k.shape[1],
            head_dim,
            k_cache.data_ptr(),
            k_cache.stride(0),
            v_cache.data_ptr(),
            v_cache.stride(0),
            k_cache.shape[2],
            slot_mapping.data_ptr(),
            slot_mapping.dtype is torch.int64,
            address_of(positions),
            positions is not None and positions.dtype is torch.int64,
            address_of(cos_sin),
            0 if cos_sin is None else cos_sin.shape[1],
            address_of(q_norm_weight),
            address_of(k_norm_weight),
            norm_eps,
            key_scale,
            value_scale,
            stream_of(q),
        )
        self.launch("rotate_and_cache", problem, like=q)

    def rotate(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor,
        cos_sin: Tensor,
        q_norm_weight: Tensor | None,
        k_norm_weight: Tensor | None,
        norm_eps: float,
    ) -> None:
        num_tokens, num_heads, head_dim = q.shape
        no_cache, no_slots = (0, 0, 0, 0, 0), (0, 0)
        problem = _pack_rotary(
            DTYPE_CODES[q.dtype],
            DTYPE_CODES[torch.float16],
            q.data_ptr(),
            q.stride(0),
            k.data_ptr(),
            k.stride(0),
            0,
            0,
            num_tokens,
            num_heads,
            k.shape[1],
            head_dim,
            *no_cache,
            *no_slots,
            positions.data_ptr(),
            positions.dtype is torch.int64,
            cos_sin.data_ptr(),
            cos_sin.shape[1],
            address_of(q_norm_weight),
            address_of(k_norm_weight),
            norm_eps,
            1.0,
            1.0,
            stream_of(q),
        )
        self.launch("rotate_and_cache", problem, like=q)

    def copy_blocks(self, blocks: Tensor, pairs: Tensor) -> None:
        """`blocks`: [planes, num_blocks, bytes] of uint8."""
        num_planes, _, num_bytes = blocks.shape
        problem = _pack_copy(
            blocks.data_ptr(),
            num_planes,
            blocks.stride(0),
            num_bytes,
            pairs.data_ptr(),
            len(pairs),
            stream_of(blocks),
        )
        self.launch("copy_blocks", problem, like=blocks)

    def swap_blocks(self, blocks: Tensor, host_blocks: Tensor, pairs: Tensor, *, is_out: bool) -> None:
        """`blocks`: [planes, num_blocks, bytes] of uint8, `host_blocks`: [num_blocks, planes, bytes]."""
        check_swap(blocks, host_blocks, pairs, is_out=is_out)
        num_planes, _, num_bytes = blocks.shape
        problem = _pack_swap(
            blocks.data_ptr(),
            num_planes,
            blocks.stride(0),
            num_bytes,
            host_blocks.data_ptr(),
            host_blocks.stride(0),
            is_out,
            pairs.data_ptr(),
            len(pairs),
            stream_of(blocks),
        )
        self.launch("swap_blocks", problem, like=blocks)
