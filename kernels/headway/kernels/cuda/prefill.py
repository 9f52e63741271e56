"""Attention of many queries a sequence over a paged cache: chunks of prompts, and decodes that run with them."""

import torch
from torch import Tensor

from headway.kernels.cuda import operators
from headway.kernels.cuda.operands import check_attention, check_results, check_scales
from headway.kernels.operands import check_spans, check_vector


def prefill_attention(
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
    soft_cap: float | None = None,
    alibi_slopes: Tensor | None = None,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
    out: Tensor | None = None,
    lse: Tensor | None = None,
) -> Tensor:
    """Attention of each sequence's queries to its keys, which are in the cache already.

    The queries of a sequence are the last tokens of its context, and each sees the keys up to its own, or those of its
    span. No host plan is needed: a launch's size depends on the number of queries and sequences. Lengths, spans and
    block tables are trusted, since a check would wait for the device.

    Args:
        q: [tokens, heads, head_dim], float32, bfloat16 or float16; tokens may be strided. head_dim is a multiple of 16
            up to 256.
        k_cache, v_cache: [num_blocks, kv_heads, block_size, head_dim], bfloat16, float16, float8_e4m3fn or, with `q`,
            float32; blocks contiguous, keys in rows as `cache_keys` lays them out; block_size is 8 to 128, and kv_heads
            divides heads. Queries of 16 bits go to the tensor cores where the cache has their dtype or is fp8.
        block_tables: [sequences, max_blocks] int32, the block of each block_size keys; rows may be strided. Only the
            entries of blocks with visible keys are read.
        seq_lens: [sequences] int32, tokens of context, this step's included; not read with `key_spans`.
        query_start: [sequences + 1] int32; the rows of sequence b are query_start[b] up to query_start[b + 1].
        scale: of the scores, usually 1 / sqrt(head_dim).
        sliding_window: how many positions a query sees, its own included; None: all.
        key_spans: [tokens, 2] int32, the first key in its sequence's block table that each token sees, and the end of
            them; a token that sees none gets zeros. Without sliding window and ALiBi.
        soft_cap: c turns a score s into c * tanh(s / c), before ALiBi.
        alibi_slopes: [heads] float32; each key's score gets slope * (key - position of the query).
        key_scale, value_scale: what cached numbers stand for: they are multiplied by these.
        out: where to write, shaped as `q`, in its dtype or float32; tokens and heads may be strided. A new tensor like
            `q` if None.
        lse: where to write the natural logarithm of each softmax's denominator, [tokens, heads] float32, may be
            strided; -inf where no key is seen.

    Returns:
        `out`, [tokens, heads, head_dim].

    Raises:
        ValueError: an operand has another shape, dtype, layout or device; nothing was written.
    """
    check_attention(q, k_cache=k_cache, v_cache=v_cache, block_tables=block_tables, alibi_slopes=alibi_slopes)
    num_sequences = block_tables.shape[0]
    check_vector("seq_lens", seq_lens, num_sequences, dtype=torch.int32, like=q)
    check_vector("query_start", query_start, num_sequences + 1, dtype=torch.int32, like=q)
    if sliding_window is not None and sliding_window < 1:
        raise ValueError(f"sliding_window must be at least 1; it is {sliding_window}")
    if key_spans is not None:
        if sliding_window is not None or alibi_slopes is not None:
            raise ValueError("sliding_window and alibi_slopes must be None with key_spans")
        check_spans("key_spans", key_spans, len(q), like=q)
    check_scales(key_scale=key_scale, value_scale=value_scale, soft_cap=soft_cap)
    out = check_results(q, out=out, lse=lse)
    operators.prefill_attention(
        q,
        k_cache,
        v_cache,
        block_tables,
        seq_lens,
        query_start,
        key_spans,
        out,
        lse,
        alibi_slopes,
        sliding_window or 0,
        scale,
        soft_cap or 0.0,
        key_scale,
        value_scale,
    )
    return out
