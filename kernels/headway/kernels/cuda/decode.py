"""Decode attention over a paged cache: one query a row, its keys cut into ranges that CTAs attend to side by side."""

from torch import Tensor

from headway.kernels.cuda import operators
from headway.kernels.cuda.operands import check_attention, check_extent, check_group, check_results, check_scales
from headway.kernels.cuda.table import DecodeTable
from headway.kernels.operands import reject


def decode_attention(
    q: Tensor,
    *,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    table: DecodeTable,
    scale: float,
    soft_cap: float | None = None,
    alibi_slopes: Tensor | None = None,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
    out: Tensor | None = None,
    lse: Tensor | None = None,
) -> Tensor:
    """Attention of each row's query to the keys that the table's plan gives it (dissertation section 5.4.1).

    The plan's indices and the block tables are trusted: a check would wait for the device. What a row gets depends on
    how its keys were cut, in the last bits, and so on the rest of the batch.

    Args:
        q: [rows, heads, head_dim], float32, bfloat16 or float16; rows may be strided. head_dim is a
            multiple of 16 up to 256.
        k_cache, v_cache: [num_blocks, kv_heads, block_size, head_dim], bfloat16, float16, float8_e4m3fn or float32,
            blocks contiguous, keys in rows as `cache_keys` lays them out; block_size is 8 to 128, and kv_heads divides
            heads. From the first block to the end of the last there are at most 64 GiB. Queries of 16 bits go to the
            tensor cores where the cache has their dtype or is fp8.
        block_tables: [sequences, max_blocks] int32, the block of each block_size keys; rows may be strided. Only the
            entries of blocks with visible keys are read.
        table: the plan, made for as many heads. Rows of q beyond those planned are left alone.
        scale: of the scores, usually 1 / sqrt(head_dim).
        soft_cap: c turns a score s into c * tanh(s / c), before ALiBi.
        alibi_slopes: [heads] float32; each key's score gets slope * (key - position of the query).
        key_scale, value_scale: what cached numbers stand for: they are multiplied by these.
        out: where to write, shaped as `q`, in its dtype or float32; rows and heads may be strided. A new tensor like
            `q` if None.
        lse: where to write the natural logarithm of each softmax's denominator, [rows, heads] float32, may be strided;
            -inf where no key is seen, and `out` is zero.

    Returns:
        `out`, [rows, heads, head_dim].

    Raises:
        ValueError: an operand has another shape, dtype, layout or device; nothing was written.
    """
    check_attention(q, k_cache=k_cache, v_cache=v_cache, block_tables=block_tables, alibi_slopes=alibi_slopes)
    check_extent("k_cache", k_cache)
    check_extent("v_cache", v_cache)
    _check_table(q, table)
    check_scales(key_scale=key_scale, value_scale=value_scale, soft_cap=soft_cap)
    out = check_results(q, out=out, lse=lse)
    operators.decode_attention(
        q,
        k_cache,
        v_cache,
        block_tables,
        table.work,
        table.num_slots,
        table.partials,
        out,
        lse,
        alibi_slopes,
        scale,
        soft_cap or 0.0,
        key_scale,
        value_scale,
    )
    operators.merge_partials(table.partials, table.starts, out, lse)
    return out


def decode_slots(q: Tensor, *, k_cache: Tensor) -> int:
    """Number of ranges of keys that the device attends to side by side, for such queries and caches.

    Args:
        q: [any, heads, head_dim].
        k_cache: [any, kv_heads, any, head_dim].

    Raises:
        ValueError: the query heads are no multiple of those in the cache.
    """
    check_group(q.shape[1], num_kv_heads=k_cache.shape[1])
    return int(operators.decode_slots(q, k_cache))


def _check_table(q: Tensor, table: DecodeTable) -> None:
    num_rows, num_heads, head_dim = q.shape
    if table.partials.shape[1:] != (num_heads, head_dim + 1) or table.partials.device != q.device:
        reject("table", table.partials, f"for {num_heads} heads of {head_dim} on {q.device}")
    if num_rows > table.num_rows:
        raise ValueError(f"q must have at most {table.num_rows} rows, as the table has; it has {num_rows}")
