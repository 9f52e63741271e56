"""Chooses the implementation of the kernels that serves a device."""

from typing import Protocol

from torch import Tensor

from headway.kernels import reference
from headway.kernels.cpu import default_kernels
from headway.kernels.cuda.step import GpuKernels
from headway.kernels.devices import KernelSet, kernel_set


class Kernels(Protocol):
    """An implementation of the kernels; the entry points have checked the operands and document them."""

    def embed(self, numbers: Tensor, *, table: Tensor) -> Tensor: ...

    def rms_norm(self, x: Tensor, *, weight: Tensor, eps: float) -> Tensor: ...

    def add_rms_norm(self, x: Tensor, *, residual: Tensor, weight: Tensor, eps: float) -> Tensor: ...

    def silu_mul(self, gate_up: Tensor) -> Tensor: ...

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
    ) -> None: ...

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
    ) -> Tensor: ...

    def merge_partials(self, partials: Tensor, *, out: Tensor) -> None: ...


_GPU_KERNELS = GpuKernels()


def kernels_for(operand: Tensor) -> Kernels:
    """The kernels for a tensor's device: C++ on the CPU, CUDA on a GPU, the torch reference elsewhere."""
    chosen = kernel_set(operand.device)
    if chosen is KernelSet.CPU:
        return default_kernels()
    return _GPU_KERNELS if chosen is KernelSet.CUDA else reference
