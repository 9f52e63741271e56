"""Calls of the compiled attention kernels. Operands were checked before."""

from struct import Struct

from torch import Tensor

from headway.kernels.cuda.library import DTYPE_CODES, CudaLibrary, address_of, stream_of

# The operand structs of csrc/cuda, field by field: q an integer, P a pointer (0: none), d a double.
_pack_shape = Struct("5q").pack
_pack_decode = Struct("5q q P2q P2q Pq Pq Pq q Pq P2q P P 4d q").pack
_pack_prefill = Struct("3q P2q P2q Pq 4q Pq Pq q Pq q2P q2P 4d q").pack
_pack_merge = Struct("q P2q P2q P3q P 4q q").pack


def _strides_of(lse: Tensor | None) -> tuple[int, int]:
    return (0, 0) if lse is None else (lse.stride(0), lse.stride(1))


def _shape_of(q: Tensor, k_cache: Tensor) -> tuple[int, ...]:
    return DTYPE_CODES[q.dtype], DTYPE_CODES[k_cache.dtype], q.shape[1], k_cache.shape[1], q.shape[2]


class AttentionCalls(CudaLibrary):
    """Decode and prefill attention, and the merge of partial results."""

    def decode_slots(self, q: Tensor, k_cache: Tensor) -> int:
        return self.ask("decode_slots", _pack_shape(*_shape_of(q, k_cache)), like=q)

    def decode_attention(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        block_tables: Tensor,
        work: Tensor,
        num_slots: int,
        partials: Tensor,
        out: Tensor,
        lse: Tensor | None,
        alibi_slopes: Tensor | None,
        scale: float,
        soft_cap: float,
        key_scale: float,
        value_scale: float,
    ) -> None:
        problem = _pack_decode(
            *_shape_of(q, k_cache),
            DTYPE_CODES[out.dtype],
            out.data_ptr(),
            out.stride(0),
            out.stride(1),
            address_of(lse),
            *_strides_of(lse),
            q.data_ptr(),
            q.stride(0),
            k_cache.data_ptr(),
            k_cache.stride(0),
            v_cache.data_ptr(),
            v_cache.stride(0),
            k_cache.shape[2],
            block_tables.data_ptr(),
            block_tables.stride(0),
            work.data_ptr(),
            work.shape[0],
            num_slots,
            partials.data_ptr(),
            address_of(alibi_slopes),
            scale,
            soft_cap,
            key_scale,
            value_scale,
            stream_of(q),
        )
        self.launch("decode_attention", problem, like=q)

    def prefill_attention(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        block_tables: Tensor,
        seq_lens: Tensor,
        query_start: Tensor,
        key_spans: Tensor | None,
        out: Tensor,
        lse: Tensor | None,
        alibi_slopes: Tensor | None,
        sliding_window: int,
        scale: float,
        soft_cap: float,
        key_scale: float,
        value_scale: float,
    ) -> None:
        problem = _pack_prefill(
            DTYPE_CODES[q.dtype],
            DTYPE_CODES[k_cache.dtype],
            DTYPE_CODES[out.dtype],
            out.data_ptr(),
            out.stride(0),
            out.stride(1),
            address_of(lse),
            *_strides_of(lse),
            q.data_ptr(),
            q.stride(0),
            q.shape[0],
            q.shape[1],
            k_cache.shape[1],
            q.shape[2],
            k_cache.data_ptr(),
            k_cache.stride(0),
            v_cache.data_ptr(),
            v_cache.stride(0),
            k_cache.shape[2],
            block_tables.data_ptr(),
            block_tables.stride(0),
            len(seq_lens),
            seq_lens.data_ptr(),
            query_start.data_ptr(),
            sliding_window,
            address_of(key_spans),
            address_of(alibi_slopes),
            scale,
            soft_cap,
            key_scale,
            value_scale,
            stream_of(q),
        )
        self.launch("prefill_attention", problem, like=q)

    def merge_partials(self, partials: Tensor, starts: Tensor | None, out: Tensor, lse: Tensor | None) -> None:
        """`partials`: [partials, heads, head_dim + 1] with `starts`, else [shards, rows, heads, head_dim + 1]."""
        if out.numel() == 0:
            return
        has_starts = starts is not None
        problem = _pack_merge(
            DTYPE_CODES[out.dtype],
            out.data_ptr(),
            out.stride(0),
            out.stride(1),
            address_of(lse),
            *_strides_of(lse),
            partials.data_ptr(),
            partials.stride(0),
            0 if has_starts else partials.stride(1),
            partials.stride(-2),
            address_of(starts),
            partials.shape[0],
            *out.shape,
            stream_of(partials),
        )
        self.launch("merge_partials", problem, like=partials)
