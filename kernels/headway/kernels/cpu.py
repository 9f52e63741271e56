"""The kernels on the CPU: C++ called through ctypes. Operands were checked by the entry points."""

from functools import cache
from struct import Struct

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.kernels.library import DTYPE_CODES, chosen_isa, load_library
from headway.kernels.linear_kernels import LinearKernels
from headway.kernels.tape import empty, launch

# The operand structs of csrc/cpu, field by field: q an integer, P a pointer (0: none), d a double.
_pack_norm = Struct("2q P Pq Pq P2q d").pack
_pack_gate = Struct("2q P Pq 2q").pack
_pack_rotary = Struct("3q Pq Pq Pq 4q Pq Pq 2q Pq Pq P2q 2P d").pack
_pack_attention = Struct("4q P2q P2q Pq 4q Pq Pq 2q P2q 3P 2q d").pack
_pack_merge = Struct("2q P2q P3q 4q").pack
_pack_embedding = Struct("q2Pq Pq 3q").pack
_pack_decode_inputs = Struct("2q 3Pq 4Pq P").pack

_EMBEDDING_FAULTS = {1: "numbers holds one that is not of a row of table"}
_ROTARY_FAULTS = {
    1: "slot_mapping holds a slot outside the cache",
    2: "positions holds a position outside cos_sin",
}
_ATTENTION_FAULTS = {
    1: "query_start must rise from 0 to the number of rows of q",
    2: "seq_lens holds a length below the sequence's query length (0 with key_spans) or above its blocks' capacity",
    3: "block_tables names a block outside the cache",
    4: "key_spans holds a span that does not lie within its sequence's keys",
}


class CpuKernels(LinearKernels):
    """The kernels of one variant of the library. It has threads of its own, as many as `torch.set_num_threads` says."""

    def __init__(self, isa: str) -> None:
        self.isa = isa
        library = load_library(isa)
        super().__init__(library)
        self._rms_norm = library.headway_rms_norm
        self._silu_mul = library.headway_silu_mul
        self._rotate_and_cache = library.headway_rotate_and_cache
        self._paged_attention = library.headway_paged_attention
        self._merge_partials = library.headway_merge_partials
        self._embed = library.headway_embed
        self._decode_inputs = library.headway_decode_inputs
        self.replay = library.headway_replay

    def rms_norm(self, x: Tensor, *, weight: Tensor, eps: float) -> Tensor:
        num_rows, width = x.shape
        out = empty((num_rows, width), x.dtype)
        launch(
            self._rms_norm,
            _pack_norm(
                torch.get_num_threads(),
                DTYPE_CODES[x.dtype],
                out.data_ptr(),
                x.data_ptr(),
                x.stride(0),
                0,
                0,
                weight.data_ptr(),
                num_rows,
                width,
                eps,
            ),
        )
        return out

    def add_rms_norm(self, x: Tensor, *, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        num_rows, width = x.shape
        out = empty((num_rows, width), x.dtype)
        launch(
            self._rms_norm,
            _pack_norm(
                torch.get_num_threads(),
                DTYPE_CODES[x.dtype],
                out.data_ptr(),
                x.data_ptr(),
                x.stride(0),
                residual.data_ptr(),
                residual.stride(0),
                weight.data_ptr(),
                num_rows,
                width,
                eps,
            ),
        )
        return out

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        num_rows, double_width = gate_up.shape
        out = empty((num_rows, double_width // 2), gate_up.dtype)
        launch(
            self._silu_mul,
            _pack_gate(
                torch.get_num_threads(),
                DTYPE_CODES[gate_up.dtype],
                out.data_ptr(),
                gate_up.data_ptr(),
                gate_up.stride(0),
                num_rows,
                double_width // 2,
            ),
        )
        return out

    def rotate_and_cache(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        k_cache: Tensor,
        v_cache: Tensor,
        slot_mapping: Tensor,
        positions: Tensor | None,
        cos_sin: Tensor | None,
        q_norm_weight: Tensor | None,
        k_norm_weight: Tensor | None,
        norm_eps: float,
    ) -> None:
        num_tokens, num_heads, head_dim = q.shape
        num_blocks, num_kv_heads, block_size, _ = k_cache.shape
        num_positions, rotary_dim = (0, 0) if cos_sin is None else cos_sin.shape
        launch(
            self._rotate_and_cache,
            _pack_rotary(
                torch.get_num_threads(),
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
                num_kv_heads,
                head_dim,
                k_cache.data_ptr(),
                k_cache.stride(0),
                v_cache.data_ptr(),
                v_cache.stride(0),
                num_blocks,
                block_size,
                slot_mapping.data_ptr(),
                slot_mapping.dtype is torch.int64,
                0 if positions is None else positions.data_ptr(),
                positions is not None and positions.dtype is torch.int64,
                0 if cos_sin is None else cos_sin.data_ptr(),
                num_positions,
                rotary_dim,
                0 if q_norm_weight is None else q_norm_weight.data_ptr(),
                0 if k_norm_weight is None else k_norm_weight.data_ptr(),
                norm_eps,
            ),
            _ROTARY_FAULTS,
        )

    def paged_attention(
        self,
        q: Tensor,
        *,
        k_cache: Tensor,
        v_cache: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        query_start: Tensor,
        scale: float,
        sliding_window: int | None,
        key_spans: Tensor | None,
        out: Tensor | None,
        lse: Tensor | None,
    ) -> Tensor:
        num_tokens, num_heads, head_dim = q.shape
        num_blocks, num_kv_heads, block_size, _ = k_cache.shape
        num_sequences, max_blocks = block_tables.shape
        if out is None:
            out = empty((num_tokens, num_heads, head_dim), q.dtype)
        launch(
            self._paged_attention,
            _pack_attention(
                torch.get_num_threads(),
                DTYPE_CODES[q.dtype],
                DTYPE_CODES[k_cache.dtype],
                DTYPE_CODES[out.dtype],
                out.data_ptr(),
                out.stride(0),
                out.stride(1),
                0 if lse is None else lse.data_ptr(),
                0 if lse is None else lse.stride(0),
                0 if lse is None else lse.stride(1),
                q.data_ptr(),
                q.stride(0),
                num_tokens,
                num_heads,
                num_kv_heads,
                head_dim,
                k_cache.data_ptr(),
                k_cache.stride(0),
                v_cache.data_ptr(),
                v_cache.stride(0),
                num_blocks,
                block_size,
                block_tables.data_ptr(),
                block_tables.stride(0),
                max_blocks,
                seq_lens.data_ptr(),
                query_start.data_ptr(),
                0 if key_spans is None else key_spans.data_ptr(),
                num_sequences,
                sliding_window or 0,
                scale,
            ),
            _ATTENTION_FAULTS,
        )
        return out

    def merge_partials(self, partials: Tensor, *, out: Tensor) -> None:
        num_tokens, num_heads, head_dim = out.shape
        launch(
            self._merge_partials,
            _pack_merge(
                torch.get_num_threads(),
                DTYPE_CODES[out.dtype],
                out.data_ptr(),
                out.stride(0),
                out.stride(1),
                partials.data_ptr(),
                partials.stride(0),
                partials.stride(1),
                partials.stride(2),
                partials.shape[0],
                num_tokens,
                num_heads,
                head_dim,
            ),
        )

    def embed(self, numbers: Tensor, *, table: Tensor) -> Tensor:
        table_rows, width = table.shape
        out = empty((len(numbers), width), table.dtype)
        launch(
            self._embed,
            _pack_embedding(
                torch.get_num_threads(),
                out.data_ptr(),
                table.data_ptr(),
                table.stride(0) * table.itemsize,
                numbers.data_ptr(),
                numbers.dtype is torch.int64,
                len(numbers),
                width * table.itemsize,
                table_rows,
            ),
            _EMBEDDING_FAULTS,
        )
        return out

    def decode_inputs(
        self,
        model_input: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]],
        *,
        block_size: int,
        token_ids: Tensor,
        positions: Tensor,
        slot_mapping: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
    ) -> int:
        known_ids, first_positions, blocks = model_input
        fault: int = self._decode_inputs(
            _pack_decode_inputs(
                len(first_positions),
                block_size,
                _address(known_ids),
                _address(first_positions),
                _address(blocks),
                len(blocks),
                token_ids.data_ptr(),
                positions.data_ptr(),
                slot_mapping.data_ptr(),
                block_tables.data_ptr(),
                block_tables.stride(0),
                seq_lens.data_ptr(),
            )
        )
        return fault


def _address(values: NDArray[np.int32]) -> int:
    address: int = values.__array_interface__["data"][0]  # in a fifth of the time that `values.ctypes` takes
    return address


@cache
def default_kernels() -> CpuKernels:
    """The variant that this process uses, loaded at the first call."""
    return CpuKernels(chosen_isa())
