"""Attention on GPUs. Captured programs have the operators that torch has for CPUs, whatever runs them later: they stand
for attention that gives the logarithms of its softmax's sums beside its result, and for its backward pass.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from headway.core.program import Program

FORWARD = "aten._scaled_dot_product_flash_attention_for_cpu.default"
BACKWARD = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"

_flash = torch.ops.aten._scaled_dot_product_flash_attention.default  # noqa: SLF001 - no public one gives sums
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_backward.default  # noqa: SLF001 - nor takes them
_efficient = torch.ops.aten._scaled_dot_product_efficient_attention.default  # noqa: SLF001
_efficient_backward = torch.ops.aten._scaled_dot_product_efficient_attention_backward.default  # noqa: SLF001
_HALVES = (torch.bfloat16, torch.float16)
_ROWS = 32
"""The memory-efficient kernel has sums for a multiple of so many queries. Going back, it takes its result to have heads
behind tokens in memory, without looking."""
_BIAS = 16
"""It reads rows of a mask that begin at a multiple of so many numbers."""
_MOST_FLASH = 256
"""Numbers of a head."""


def gpu_functions(program: Program) -> Mapping[str, Callable[..., Any]]:
    """What computes a program's attention on a GPU, by target. Where nothing reads the sums, that is whichever kernel
    torch finds best."""
    count = len(program.inputs)
    makers = {count + at for at, each in enumerate(program.instructions) if each.target == FORWARD}
    picks = (json.loads(each.arguments)["args"] for each in program.instructions if each.target == "getitem")
    reads_sums = any(given["value"] in makers and place == 1 for given, place in picks)
    return {FORWARD: attention if reads_sums else _attention_alone, BACKWARD: attention_backward}


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - as the operator is called
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """As the CPU's operator: of queries, keys, values [batch, heads, tokens, numbers of a head], what they give, laid
    out as the queries, and in float32 or wider the logarithm of each row's sum [batch, heads, tokens], laid out as
    gradients.

    Args:
        key, value: may have fewer heads, of which each is read by as many neighbours of the queries'.
        is_causal: token i reads the first i + 1 keys, however many more there are.
        attn_mask: of the queries' dtype, added to the scores.
    """
    assert dropout_p == 0.0, "torch captures attention with dropout as other operators"
    share, layout = query.shape[1] // key.shape[1], torch.empty_like(query, device="meta").stride()
    query, key, value = map(_with_dense_rows, (query, _repeated(key, share), _repeated(value, share)))
    if _runs_flash(query, key, is_causal=is_causal, attn_mask=attn_mask):
        found = _flash(query, key, value, 0.0, is_causal, scale=scale)
        return _laid_out(found[0], layout), _by_tokens(found[1])
    if _runs_efficient(query, value):
        bias = _bias(attn_mask, query, key)
        found = _efficient(query, key, value, bias, True, 0.0, is_causal, scale=scale)  # noqa: FBT003 - as it is called
        return _laid_out(found[0], layout), _by_tokens(found[1][..., : query.shape[2]])
    scores = _scores(query, key, is_causal=is_causal, attn_mask=attn_mask, scale=scale)
    sums = scores.logsumexp(-1)
    weights = (scores - sums.unsqueeze(-1)).exp().to(query.dtype)
    return _laid_out(weights @ value, layout), _by_tokens(sums)


def attention_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    sums: Tensor,
    dropout_p: float,
    is_causal: bool,  # noqa: FBT001 - as the operator is called
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values, with heads behind tokens in memory.

    Args:
        gradient: of `out`.
        out, sums: that `attention` gave; the others are what it was given.
    """
    assert dropout_p == 0.0, "torch captures attention with dropout as other operators"
    share = query.shape[1] // key.shape[1]
    key, value = _repeated(key, share), _repeated(value, share)
    gradient, query, key, value = map(_with_dense_rows, (gradient, query, key, value))
    sums = sums.contiguous()
    no_seed = query.new_empty((), dtype=torch.int64)
    if _runs_flash(query, key, is_causal=is_causal, attn_mask=attn_mask):
        found = _flash_backward(
            gradient, query, key, value, out, sums, None, None, query.shape[2], key.shape[2], 0.0, is_causal, no_seed,
            no_seed, scale=scale,
        )  # fmt: skip
    elif _runs_efficient(query, value):
        missing = -sums.shape[-1] % _ROWS
        padded = functional.pad(sums, (0, missing), value=float("inf"))
        found = _efficient_backward(
            gradient, query, key, value, _bias(attn_mask, query, key), _by_tokens(out), padded, no_seed, no_seed, 0.0,
            [True, True, True, False], is_causal, scale=scale,
        )  # fmt: skip
    else:
        found = _written_backward(
            gradient, query, key, value, out, sums, is_causal=is_causal, attn_mask=attn_mask, scale=scale
        )
    dq, dk, dv = found[:3]
    if share > 1:
        dk, dv = (each.unflatten(1, (-1, share)).sum(2) for each in (dk, dv))
    return _by_tokens(dq), _by_tokens(dk), _by_tokens(dv)


def _attention_alone(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - as the operator is called
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor]:
    found = functional.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=bool(key.shape[1] != query.shape[1])
    )
    return (_laid_out(found, torch.empty_like(query, device="meta").stride()),)


def _runs_flash(query: Tensor, key: Tensor, *, is_causal: bool, attn_mask: Tensor | None) -> bool:
    """Its causal mask ends at the last key, not at the first."""
    is_square = not is_causal or query.shape[2] == key.shape[2]
    head = query.shape[3]
    fits = head % 8 == 0 and head <= _MOST_FLASH
    return query.is_cuda and query.dtype in _HALVES and attn_mask is None and is_square and fits


def _runs_efficient(query: Tensor, value: Tensor) -> bool:
    """It reads 16 bytes of a head at once."""
    numbers = 16 // query.element_size()
    is_known = query.dtype in (torch.float32, *_HALVES)
    return query.is_cuda and is_known and query.shape[3] % numbers == value.shape[3] % numbers == 0


def _bias(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """A mask for every example and head."""
    if mask is None:
        return None
    if mask.shape[-1] % _BIAS:
        mask = functional.pad(mask, (0, -mask.shape[-1] % _BIAS))[..., : mask.shape[-1]]
    return mask.expand(*query.shape[:3], key.shape[2])


def _written_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, sums: Tensor,
    *, is_causal: bool, attn_mask: Tensor | None, scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """In operators that all devices and dtypes have."""
    scores = _scores(query, key, is_causal=is_causal, attn_mask=attn_mask, scale=scale)
    weights = (scores - sums.unsqueeze(-1)).exp()
    rows = (gradient * out).sum(-1, keepdim=True, dtype=scores.dtype)
    changes = weights * ((gradient @ value.transpose(-1, -2)).to(scores.dtype) - rows) * _scale(query, scale)
    changes = changes.to(query.dtype)
    return changes @ key, changes.transpose(-1, -2) @ query, weights.to(query.dtype).transpose(-1, -2) @ gradient


def _scores(query: Tensor, key: Tensor, *, is_causal: bool, attn_mask: Tensor | None, scale: float | None) -> Tensor:
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = (query @ key.transpose(-1, -2)).to(wide) * _scale(query, scale)
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores if attn_mask is None else scores + attn_mask


def _scale(query: Tensor, scale: float | None) -> float:
    return float(query.shape[-1] ** -0.5 if scale is None else scale)


def _repeated(tensor: Tensor, share: int) -> Tensor:
    """Keys or values for every head of the queries, of which so many share one."""
    return tensor if share == 1 else tensor.repeat_interleave(share, 1)


def _with_dense_rows(tensor: Tensor) -> Tensor:
    """As the kernels for GPUs read it: the numbers of a head side by side, and no dim broadcast."""
    return tensor if tensor.stride(-1) == 1 and 0 not in tensor.stride() else tensor.contiguous()


def _laid_out(tensor: Tensor, stride: tuple[int, ...]) -> Tensor:
    """As the CPU's operator lays it out, on which views of captured programs rest."""
    if tensor.stride() == stride:
        return tensor
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _by_tokens(tensor: Tensor) -> Tensor:
    """Heads behind tokens in memory, as the CPU's operators lay out sums and gradients."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)
