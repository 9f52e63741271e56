"""The CUDA kernels as torch operators, that `torch.compile` and CUDA graphs see. Operands were checked before."""

from torch import Tensor
from torch.library import custom_op

from headway.kernels.cuda.kernels import CudaKernels, gpu_kernels


@custom_op("headway::decode_slots", mutates_args=(), device_types="cuda")
def decode_slots(q: Tensor, k_cache: Tensor) -> int:
    return gpu_kernels().decode_slots(q, k_cache)


@custom_op("headway::decode_attention", mutates_args=("partials", "out", "lse"), device_types="cuda")
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


@custom_op("headway::prefill_attention", mutates_args=("out", "lse"), device_types="cuda")
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


@custom_op("headway::merge_partials", mutates_args=("out", "lse"), device_types="cuda")
def merge_partials(partials: Tensor, starts: Tensor | None, out: Tensor, lse: Tensor | None) -> None:
    gpu_kernels().merge_partials(partials, starts=starts, out=out, lse=lse)


@custom_op("headway::rotate_and_cache", mutates_args=("q", "k", "k_cache", "v_cache"), device_types="cuda")
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


@custom_op("headway::rotate", mutates_args=("q", "k"), device_types="cuda")
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


@custom_op("headway::copy_blocks", mutates_args=("blocks",), device_types="cuda")
def copy_blocks(blocks: Tensor, pairs: Tensor) -> None:
    gpu_kernels().copy_blocks(blocks, pairs=pairs)


@custom_op("headway::swap_blocks", mutates_args=("blocks", "host_blocks"), device_types="cuda")
def swap_blocks(blocks: Tensor, host_blocks: Tensor, pairs: Tensor, *, is_out: bool) -> None:
    gpu_kernels().swap_blocks(blocks, host_blocks, pairs=pairs, is_out=is_out)


@custom_op("headway::rms_norm", mutates_args=("residual", "out"), device_types="cuda")
def rms_norm(x: Tensor, residual: Tensor | None, weight: Tensor, out: Tensor, eps: float) -> None:
    gpu_kernels().rms_norm(x, residual=residual, weight=weight, out=out, eps=eps)


@custom_op("headway::silu_mul", mutates_args=("out",), device_types="cuda")
def silu_mul(gate_up: Tensor, out: Tensor) -> None:
    gpu_kernels().silu_mul(gate_up, out=out)


@custom_op("headway::sample_tokens", mutates_args=("out",), device_types="cuda")
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


_OPERATORS = {
    "decode_slots": decode_slots,
    "decode_attention": decode_attention,
    "prefill_attention": prefill_attention,
    "merge_partials": merge_partials,
    "rotate_and_cache": rotate_and_cache,
    "rotate": rotate,
    "copy_blocks": copy_blocks,
    "swap_blocks": swap_blocks,
    "rms_norm": rms_norm,
    "silu_mul": silu_mul,
    "sample_tokens": sample_tokens,
}

for _operator in _OPERATORS.values():
    _operator.register_fake(lambda *_operands, **_options: None)


def serve_cpu(kernels: CudaKernels) -> None:
    """Lets a library that was compiled for the CPU serve the operators there."""
    for name, operator in _OPERATORS.items():
        operator.register_kernel("cpu")(getattr(kernels, name))
