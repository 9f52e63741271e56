"""The CUDA kernels as torch operators, that `torch.compile` and CUDA graphs see. Operands were checked before.

They are defined by their schema: a call then takes a tenth of what it takes through `torch.library.custom_op`, which
goes through Python several times. Nothing of that is needed without gradients.
"""

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import torch
from torch import Tensor, library

from headway.kernels.cuda.kernels import CudaKernels, gpu_kernels

Operands = ParamSpec("Operands")
R = TypeVar("R")

_LIBRARY: Final = library.Library("headway", "DEF")  # type: ignore[no-untyped-call]


def _operator(*mutated: str) -> Callable[[Callable[Operands, R]], Callable[Operands, R]]:
    """Registers a function as a torch operator of its name on a GPU, and puts the operator in its place.

    Args:
        mutated: operands that it writes to.
    """

    def define(function: Callable[Operands, R]) -> Callable[Operands, R]:
        name = function.__name__
        schema = library.infer_schema(function, mutates_args=mutated)
        _LIBRARY.define(name + schema, tags=torch.Tag.pt2_compliant_tag)  # type: ignore[no-untyped-call]
        _LIBRARY.impl(name, function, "CUDA")  # type: ignore[no-untyped-call]
        library.register_fake(f"headway::{name}", lambda *_operands, **_options: None, lib=_LIBRARY)
        operator: Callable[Operands, R] = getattr(torch.ops.headway, name).default
        return operator

    return define


@_operator()
def decode_slots(q: Tensor, k_cache: Tensor) -> int:
    return gpu_kernels().decode_slots(q, k_cache)


@_operator("partials", "out", "lse")
def decode_attention(
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
    gpu_kernels().decode_attention(
        q,
        k_cache=k_cache,
        v_cache=v_cache,
        block_tables=block_tables,
        work=work,
        num_slots=num_slots,
        partials=partials,
        out=out,
        lse=lse,
        alibi_slopes=alibi_slopes,
        scale=scale,
        soft_cap=soft_cap,
        key_scale=key_scale,
        value_scale=value_scale,
    )


@_operator("out", "lse")
def prefill_attention(
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
    gpu_kernels().prefill_attention(
        q,
        k_cache=k_cache,
        v_cache=v_cache,
        block_tables=block_tables,
        seq_lens=seq_lens,
        query_start=query_start,
        key_spans=key_spans,
        out=out,
        lse=lse,
        alibi_slopes=alibi_slopes,
        sliding_window=sliding_window,
        scale=scale,
        soft_cap=soft_cap,
        key_scale=key_scale,
        value_scale=value_scale,
    )


@_operator("out", "lse")
def merge_partials(partials: Tensor, starts: Tensor | None, out: Tensor, lse: Tensor | None) -> None:
    gpu_kernels().merge_partials(partials, starts=starts, out=out, lse=lse)


@_operator("q", "k", "k_cache", "v_cache")
def rotate_and_cache(
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
    gpu_kernels().rotate_and_cache(
        q,
        k,
        v,
        k_cache=k_cache,
        v_cache=v_cache,
        slot_mapping=slot_mapping,
        positions=positions,
        cos_sin=cos_sin,
        q_norm_weight=q_norm_weight,
        k_norm_weight=k_norm_weight,
        norm_eps=norm_eps,
        key_scale=key_scale,
        value_scale=value_scale,
    )


@_operator("q", "k")
def rotate(
    q: Tensor,
    k: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    q_norm_weight: Tensor | None,
    k_norm_weight: Tensor | None,
    norm_eps: float,
) -> None:
    gpu_kernels().rotate(
        q,
        k,
        positions=positions,
        cos_sin=cos_sin,
        q_norm_weight=q_norm_weight,
        k_norm_weight=k_norm_weight,
        norm_eps=norm_eps,
    )


@_operator("blocks")
def copy_blocks(blocks: Tensor, pairs: Tensor) -> None:
    gpu_kernels().copy_blocks(blocks, pairs=pairs)


@_operator("blocks", "host_blocks")
def swap_blocks(blocks: Tensor, host_blocks: Tensor, pairs: Tensor, *, is_out: bool) -> None:
    gpu_kernels().swap_blocks(blocks, host_blocks, pairs=pairs, is_out=is_out)


@_operator("residual", "out")
def rms_norm(x: Tensor, residual: Tensor | None, weight: Tensor, out: Tensor, eps: float) -> None:
    gpu_kernels().rms_norm(x, residual=residual, weight=weight, out=out, eps=eps)


@_operator("out")
def silu_mul(gate_up: Tensor, out: Tensor) -> None:
    gpu_kernels().silu_mul(gate_up, out=out)


@_operator("out")
def sample_tokens(
    logits: Tensor,
    seeds: Tensor,
    positions: Tensor,
    temperatures: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    out: Tensor,
) -> None:
    gpu_kernels().sample_tokens(
        logits,
        seeds=seeds,
        positions=positions,
        temperatures=temperatures,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        out=out,
    )


_OPERATORS = (
    "decode_slots",
    "decode_attention",
    "prefill_attention",
    "merge_partials",
    "rotate_and_cache",
    "rotate",
    "copy_blocks",
    "swap_blocks",
    "rms_norm",
    "silu_mul",
    "sample_tokens",
)


def serve_cpu(kernels: CudaKernels) -> None:
    """Lets a library that was compiled for the CPU serve the operators there."""
    for name in _OPERATORS:
        _LIBRARY.impl(name, getattr(kernels, name), "CPU")  # type: ignore[no-untyped-call]
