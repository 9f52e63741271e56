"""Kernels of the inference step: checked entry points, C++ for the CPU, a torch reference for every device."""

from headway.kernels.activation import silu_mul
from headway.kernels.attention import merge_partials, paged_attention
from headway.kernels.linear import PackedLinear, linear, pack_linear
from headway.kernels.norm import add_rms_norm, rms_norm
from headway.kernels.quantization import quantize
from headway.kernels.rotary import rotate_and_cache

__all__ = [
    "PackedLinear",
    "add_rms_norm",
    "linear",
    "merge_partials",
    "pack_linear",
    "paged_attention",
    "quantize",
    "rms_norm",
    "rotate_and_cache",
    "silu_mul",
]
