"""The kernels in plain torch: what they compute, on any device. Slow, and the oracle for every other version.

Arithmetic is in float32, or in float64 where the operands are.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn import functional


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _normalised(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    x = _wide(x)
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * _wide(weight)


def embed(numbers: Tensor, *, table: Tensor) -> Tensor:
    return functional.embedding(numbers, table)


def rms_norm(x: Tensor, *, weight: Tensor, eps: float) -> Tensor:
    return _normalised(x, weight, eps).to(x.dtype)


def add_rms_norm(x: Tensor, *, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    residual.copy_(_wide(residual) + _wide(x))
    return rms_norm(residual, weight=weight, eps=eps)


def silu_mul(gate_up: Tensor) -> Tensor:
    gate, up = _wide(gate_up).chunk(2, dim=-1)
    return (gate * torch.sigmoid(gate) * up).to(gate_up.dtype)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


def linear(
    x: Tensor,
    *,
    weight: Tensor,
    scales: Tensor | None,
    is_gated: bool,
    bias: Tensor | None,
    activation: str,
    residual: Tensor | None,
) -> Tensor:
    out = functional.linear(x, weight.to(x.dtype))
    out = out if scales is None else out * scales
    out = out if bias is None else out + bias
    if is_gated:
        gate, value = out.chunk(2, dim=1)
        return _ACTIVATIONS[activation](gate) * value
    out = _ACTIVATIONS[activation](out)
    return out if residual is None else out + residual


def _rotated(x: Tensor, cos_sin: Tensor) -> Tensor:
    """`x`: [tokens, heads, head_dim], `cos_sin`: [tokens, rotary_dim]."""
    cos, sin = cos_sin.to(x.dtype).unsqueeze(1).chunk(2, dim=-1)
    first, second = x[..., : cos_sin.shape[1]].chunk(2, dim=-1)
    passed = x[..., cos_sin.shape[1] :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, passed), dim=-1)


def rotate_and_cache(
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
    key_scale: float = 1.0,
    value_scale: float = 1.0,
) -> None:
    for x, weight in ((q, q_norm_weight), (k, k_norm_weight)):
        heads = _wide(x) if weight is None else _normalised(x, weight, norm_eps)
        if cos_sin is not None and positions is not None:
            heads = _rotated(heads, cos_sin[positions.long()])
        x.copy_(heads)
    block_size = k_cache.shape[2]
    is_here = slot_mapping >= 0
    slots = slot_mapping[is_here].long()
    for rows, rows_cache, scale in ((k, k_cache, key_scale), (v, v_cache, value_scale)):
        cached = _wide(rows[is_here]) / scale
        if rows_cache.dtype is torch.float8_e4m3fn:
            largest = torch.finfo(rows_cache.dtype).max
            cached = cached.clamp(-largest, largest)  # what is too large is no NaN
        rows_cache[slots // block_size, :, slots % block_size] = cached.to(rows_cache.dtype)


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    visible: Tensor,
    distances: Tensor,
    scale: float,
    soft_cap: float | None,
    alibi_slopes: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """`q`: [queries, heads, head_dim], `k`, `v`: [keys, kv_heads, head_dim], `visible`, and `distances` from the query
    to the key: [queries, keys].

    Returns the result, as `q`, and the logarithms of the softmax's sums, [queries, heads].
    """
    group_size = q.shape[1] // k.shape[1]
    keys, values = (x.repeat_interleave(group_size, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, keys) * scale
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    if alibi_slopes is not None:
        scores = scores + alibi_slopes[:, None, None].to(q.dtype) * distances
    scores = scores.masked_fill(~visible, -torch.inf)
    lse = scores.logsumexp(dim=-1)
    weights = torch.exp(scores - lse.masked_fill(lse == -torch.inf, 0)[..., None])  # zeros where nothing is visible
    return torch.einsum("hqk,khd->qhd", weights, values), lse.T


def _cached(cache: Tensor, block_table: Tensor, keys: Tensor, *, factor: float, like: Tensor) -> Tensor:
    """Reads the cache at `keys`: [keys, kv_heads, head_dim], in the dtype of `like`."""
    block_size = cache.shape[2]
    return cache[block_table[keys // block_size].long(), :, keys % block_size].to(like.dtype) * factor


def _causal_spans(context_len: int, query_len: int, sliding_window: int | None, device: torch.device) -> Tensor:
    ends = torch.arange(context_len - query_len, context_len, device=device) + 1
    firsts = torch.zeros_like(ends) if sliding_window is None else (ends - sliding_window).clamp_min(0)
    return torch.stack((firsts, ends), dim=1)


def paged_attention(
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
    soft_cap: float | None = None,
    alibi_slopes: Tensor | None = None,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
) -> Tensor:
    out = torch.empty_like(q) if out is None else out
    wide = _wide(q)
    starts = query_start.tolist()
    for sequence, context_len in enumerate(seq_lens.tolist()):
        rows = slice(starts[sequence], starts[sequence + 1])
        if rows.start == rows.stop:
            continue
        if key_spans is None:
            spans = _causal_spans(context_len, rows.stop - rows.start, sliding_window, q.device)
        else:
            spans = key_spans[rows]
        firsts, ends = spans[:, :1], spans[:, 1:]
        last_end = int(ends.where(firsts < ends, 0).max())
        first_key = int(firsts.where(firsts < ends, last_end).min())
        keys = torch.arange(first_key, last_end, device=q.device)
        positions = torch.arange(context_len - rows.stop + rows.start, context_len, device=q.device)
        sums, sums_lse = _attention(
            wide[rows],
            _cached(k_cache, block_tables[sequence], keys, factor=key_scale, like=wide),
            _cached(v_cache, block_tables[sequence], keys, factor=value_scale, like=wide),
            visible=(firsts <= keys) & (keys < ends),
            distances=keys - positions[:, None],
            scale=scale,
            soft_cap=soft_cap,
            alibi_slopes=alibi_slopes,
        )
        out[rows] = sums.to(out.dtype)
        if lse is not None:
            lse[rows] = sums_lse.to(lse.dtype)
    return out


def merge_partials(partials: Tensor, *, out: Tensor) -> None:
    values, lse = partials[..., :-1], partials[..., -1:]
    is_empty = lse == -torch.inf
    largest = lse.amax(dim=0)
    weights = torch.exp(lse - largest.masked_fill(largest == -torch.inf, 0))
    sums = (values * weights).masked_fill(is_empty, 0).sum(dim=0)
    out.copy_(sums / weights.sum(dim=0).masked_fill(is_empty.all(dim=0), 1))


def decode_attention(
    q: Tensor,
    *,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    rows: Iterable[tuple[int, int, int, int]],
    scale: float,
    soft_cap: float | None = None,
    alibi_slopes: Tensor | None = None,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Attention of one query a row, [rows, heads, head_dim], to keys [first_key, end_key) of its sequence.

    `rows`: (sequence, first_key, end_key, position) of each. Returns the result and the logarithms of the softmax's
    sums, [rows, heads].
    """
    q = _wide(q)
    out, lse = torch.zeros_like(q), q.new_full(q.shape[:2], -torch.inf)
    for row, (sequence, first_key, end_key, position) in enumerate(rows):
        if first_key == end_key:
            continue
        keys = torch.arange(first_key, end_key, device=q.device)
        sums, sums_lse = _attention(
            q[row : row + 1],
            _cached(k_cache, block_tables[sequence], keys, factor=key_scale, like=q),
            _cached(v_cache, block_tables[sequence], keys, factor=value_scale, like=q),
            visible=torch.ones_like(keys, dtype=torch.bool),
            distances=keys - position,
            scale=scale,
            soft_cap=soft_cap,
            alibi_slopes=alibi_slopes,
        )
        out[row], lse[row] = sums[0], sums_lse[0]
    return out, lse


def copy_blocks(blocks: Tensor, *, pairs: Tensor) -> None:
    sources, targets = pairs.unbind(dim=1)
    memory = blocks.view(torch.uint8)
    memory[:, :, targets] = memory[:, :, sources]


def swap_blocks(blocks: Tensor, host_blocks: Tensor, *, pairs: Tensor, is_out: bool) -> None:
    sources, targets = pairs.unbind(dim=1)
    memory, host_memory = blocks.view(torch.uint8), host_blocks.view(torch.uint8)
    if is_out:
        host_memory[targets] = memory[:, :, sources].movedim(2, 0).to(host_memory.device)
    else:
        memory[:, :, targets] = host_memory[sources].movedim(0, 2).to(memory.device)


_MASK_64 = (1 << 64) - 1
_MASS_OF_ONE = 1 << 43


def _mixed(state: int) -> int:
    """Mixes a state by splitmix64's output function."""
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK_64
    state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK_64
    return state ^ state >> 31


def _uniform(seed: int, position: int) -> int:
    """2^52 times a number in [0, 1): the generator's state after `position` steps, mixed twice."""
    return _mixed(_mixed(seed & _MASK_64) + (position + 1) * 0x9E3779B97F4A7C15 & _MASK_64) >> 12


def sample_tokens(
    logits: Tensor,
    *,
    seeds: Tensor,
    positions: Tensor,
    temperatures: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
) -> Tensor:
    """Masses are whole multiples of 2^-43, so that their sums are exact."""
    tokens = logits.argmax(dim=1)
    for row, temperature in enumerate(temperatures.tolist()):
        if temperature == 0:
            continue
        weights = torch.exp((logits[row] - logits[row].max()) / temperatures[row])
        if not logits[row].max().isfinite():
            weights = torch.ones_like(weights)
        least, descending = min_p[row], weights.sort(descending=True).values
        if 0 < top_k[row] < len(weights):
            least = torch.maximum(least, descending[top_k[row] - 1])
        masses = (descending.double() * _MASS_OF_ONE).long().where(descending >= least, 0)
        if top_p[row] < 1:
            wanted = torch.ceil(top_p[row] * masses.sum()).clamp_min(1)
            least = torch.maximum(least, descending[int((masses.cumsum(0) < wanted).sum())])
        ends = (weights.double() * _MASS_OF_ONE).long().where(weights >= least, 0).cumsum(0)
        target = _uniform(int(seeds[row]), int(positions[row])) * int(ends[-1]) >> 52
        tokens[row] = torch.searchsorted(ends, target, right=True)
    return tokens
