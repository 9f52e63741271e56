"""Attention over a paged key-value cache, whole or in the shards that hold a part of it each."""

import torch
from torch import Tensor

from headway.kernels.dispatch import kernels_for
from headway.kernels.operands import (
    check_caches,
    check_heads,
    check_partials,
    check_result,
    check_result_heads,
    check_spans,
    check_vector,
    floats_on,
    names_of,
)


def paged_attention(
    q: Tensor,
    *,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    scale: float,
    sliding_window: int | None = None,
    key_spans: Tensor | None = None,
    out: Tensor | None = None,
    lse: Tensor | None = None,
) -> Tensor:
    """Attention of prefill chunks and decodes together; the keys and values are in the cache already.

    Without `key_spans` it is causal: the queries of a sequence are the last tokens of its context. With them, the cache
    may hold any part of a context, and `merge_partials` joins what several such parts give. A row's result depends on
    its own sequence only, bit for bit: not on the rest of the batch, on how a prompt was cut into chunks, or on the
    number of threads.

    Args:
        q: [tokens, heads, head_dim], float32 or bfloat16; tokens may be strided.
        k_cache, v_cache: [num_blocks, kv_heads, block_size, head_dim], float32 or bfloat16, blocks contiguous and
            keys as `cache_keys` lays them out; kv_heads divides heads.
        block_tables: [sequences, max_blocks] int32, the block of each block_size keys; rows may be strided.
            Entries are not read before the first key that a query of the sequence sees, nor after the last.
        seq_lens: [sequences] int32, tokens of context, this step's included; with `key_spans`, the keys that lie here,
            0 or more whatever the number of queries.
        query_start: [sequences + 1] int32; the rows of sequence b are query_start[b] up to query_start[b + 1].
        scale: of the scores, usually 1 / sqrt(head_dim).
        sliding_window: how many positions a query sees, its own included; None: all.
        key_spans: [tokens, 2] int32, the first key in its sequence's block table that each token sees, and the end of
            them. A token that sees none gets zeros. The sliding window is theirs: none may be given besides.
        out: where to write, shaped as `q`, in its dtype or float32; tokens and heads may be strided. A new tensor like
            `q` if None.
        lse: where to write the natural logarithm of each softmax's denominator, the sum of exp(scale * q k);
            [tokens, heads] float32, may be strided; -inf where no key is seen.

    Returns:
        `out`, [tokens, heads, head_dim].

    Raises:
        ValueError: an operand has another shape, dtype, layout or device, or holds impossible values; nothing was
            written.
    """
    num_tokens, num_heads, head_dim = check_heads("q", q)
    num_kv_heads = check_caches(k_cache, v_cache, head_dim=head_dim, like=q)
    if num_kv_heads == 0 or num_heads % num_kv_heads:
        raise ValueError(f"q must have a multiple of {num_kv_heads} heads, as k_cache has; it has {num_heads}")
    if (
        block_tables.dim() != 2
        or block_tables.dtype is not torch.int32
        or (block_tables.stride(1) != 1 and block_tables.shape[1] > 1)
        or block_tables.device != q.device
    ):
        raise ValueError(f"block_tables must be an int32 matrix of contiguous rows on {q.device}")
    num_sequences = block_tables.shape[0]
    check_vector("seq_lens", seq_lens, num_sequences, dtype=torch.int32, like=q)
    check_vector("query_start", query_start, num_sequences + 1, dtype=torch.int32, like=q)
    if sliding_window is not None and sliding_window < 1:
        raise ValueError(f"sliding_window must be at least 1; it is {sliding_window}")
    if key_spans is not None:
        if sliding_window is not None:
            raise ValueError(f"sliding_window must be None with key_spans; it is {sliding_window}")
        check_spans("key_spans", key_spans, num_tokens, like=q)
    if out is not None:
        dtype = torch.float32 if out.dtype is torch.float32 else q.dtype
        check_result_heads("out", out, dtype=dtype, shape=q.shape, like=q)
    if lse is not None:
        check_result("lse", lse, dtype=torch.float32, shape=(num_tokens, num_heads), like=q)
    return kernels_for(q).paged_attention(
        q,
        k_cache=k_cache,
        v_cache=v_cache,
        block_tables=block_tables,
        seq_lens=seq_lens,
        query_start=query_start,
        scale=scale,
        sliding_window=sliding_window,
        key_spans=key_spans,
        out=out,
        lse=lse,
    )


def merge_partials(partials: Tensor, *, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
    """Attention over all keys, from the attention over each shard's.

    Args:
        partials: [shards, tokens, heads, head_dim + 1] float32, rows contiguous: what `paged_attention` wrote to `out`
            over a shard's keys, then to `lse`. Of a row with an lse of -inf nothing else is read; where all are, the
            result is zeros.
        dtype: of the result, float32 or bfloat16.
        out: where to write, [tokens, heads, head_dim] of `dtype`; tokens and heads may be strided. A new tensor if
            None.

    Returns:
        `out`: the shards' results, weighted by exp(lse).

    Raises:
        ValueError: an operand has another shape, dtype, layout or device.
    """
    shape = check_partials("partials", partials)
    dtypes = floats_on(partials.device)
    if dtype not in dtypes:
        raise ValueError(f"dtype must be {names_of(dtypes)}; it is {dtype}")
    if out is None:
        out = torch.empty(shape, dtype=dtype, device=partials.device)
    else:
        check_result_heads("out", out, dtype=dtype, shape=shape, like=partials)
    kernels_for(partials).merge_partials(partials, out=out)
    return out
