"""Attention over a paged key-value cache."""

import torch
from torch import Tensor

from headway.kernels.dispatch import kernels_for
from headway.kernels.operands import check_caches, check_heads, check_like, check_vector


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
    out: Tensor | None = None,
) -> Tensor:
    """Causal attention of prefill chunks and decodes together; the keys and values are in the cache already.

    The queries of a sequence are the last tokens of its context. A row's result depends on its own sequence only,
    bit for bit: not on the rest of the batch, on how a prompt was cut into chunks, or on the number of threads.

    Args:
        q: [tokens, heads, head_dim], float32 or bfloat16; tokens may be strided.
        k_cache, v_cache: [num_blocks, kv_heads, block_size, head_dim], float32 or bfloat16, blocks contiguous and
            each head's keys in them transposed: `k_cache.mT` has strides like `v_cache`;
            kv_heads divides heads.
        block_tables: [sequences, max_blocks] int32, the block of each block_size positions; rows may be strided.
            Entries beyond a context, or before every query's window, are not read.
        seq_lens: [sequences] int32, tokens of context, this step's included.
        query_start: [sequences + 1] int32; the rows of sequence b are query_start[b] up to query_start[b + 1].
        scale: of the scores, usually 1 / sqrt(head_dim).
        sliding_window: how many positions a query sees, its own included; None: all.
        out: where to write, as `q`; a new tensor if None.

    Returns:
        [tokens, heads, head_dim], the dtype of `q`.

    Raises:
        ValueError: an operand has another shape, dtype, layout or device, or holds impossible values; nothing was
            written.
    """
    _, num_heads, head_dim = check_heads("q", q)
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
    if out is not None:
        check_heads("out", out)
        check_like("out", out, q)
    return kernels_for(q).paged_attention(
        q,
        k_cache=k_cache,
        v_cache=v_cache,
        block_tables=block_tables,
        seq_lens=seq_lens,
        query_start=query_start,
        scale=scale,
        sliding_window=sliding_window,
        out=out,
    )
