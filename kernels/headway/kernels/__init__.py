"""Kernels of the inference step: checked entry points, C++ for the CPU, a torch reference for every device."""

from headway.kernels.activation import silu_mul
from headway.kernels.arena import Arena
from headway.kernels.attention import merge_partials, paged_attention
from headway.kernels.blocks import copy_blocks, swap_blocks
from headway.kernels.cache import cache_keys
from headway.kernels.cuda import DecodeRows, DecodeTable, decode_attention, decode_slots
from headway.kernels.decode_inputs import DecodeInputs
from headway.kernels.devices import KernelSet, kernel_set, staged, to_device
from headway.kernels.embedding import embed
from headway.kernels.linear import PackedLinear, linear, pack_linear
from headway.kernels.norm import add_rms_norm, rms_norm
from headway.kernels.quantization import quantize
from headway.kernels.recording import Recording, UnrecordedOperatorError, record
from headway.kernels.rotary import rotate_and_cache
from headway.kernels.sketch import Sketch, find_largest, sketch_linear

__all__ = [
    "Arena",
    "DecodeInputs",
    "DecodeRows",
    "DecodeTable",
    "KernelSet",
    "PackedLinear",
    "Recording",
    "Sketch",
    "UnrecordedOperatorError",
    "add_rms_norm",
    "cache_keys",
    "copy_blocks",
    "decode_attention",
    "decode_slots",
    "embed",
    "find_largest",
    "kernel_set",
    "linear",
    "merge_partials",
    "pack_linear",
    "paged_attention",
    "quantize",
    "record",
    "rms_norm",
    "rotate_and_cache",
    "silu_mul",
    "sketch_linear",
    "staged",
    "swap_blocks",
    "to_device",
]
