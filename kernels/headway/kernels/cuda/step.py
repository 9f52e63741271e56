"""The CUDA kernels in the shape in which the entry points of `headway.kernels` ask for a device's kernels."""

from torch import Tensor
from torch.nn import functional

from headway.kernels.cuda import activation, merge, norm, prefill, rotary


class GpuKernels:
    """The kernels of a worker's step on a GPU; `headway.kernels.dispatch.Kernels` documents the methods."""

    def embed(self, numbers: Tensor, *, table: Tensor) -> Tensor:
        return functional.embedding(numbers, table)

    def rms_norm(self, x: Tensor, *, weight: Tensor, eps: float) -> Tensor:
        return norm.rms_norm(x, weight, eps=eps)

    def add_rms_norm(self, x: Tensor, *, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        return norm.add_rms_norm(x, residual, weight, eps=eps)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        return activation.silu_mul(gate_up)

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
        rotary.rotate_and_cache(
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
        return prefill.prefill_attention(
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

    def merge_partials(self, partials: Tensor, *, out: Tensor) -> None:
        merge.merge_partials(partials, dtype=out.dtype, out=out)
