"""Kernels of the inference step in CUDA C++, called as torch operators; decode attention is planned on the host."""

from headway.kernels.cuda.activation import silu_mul
from headway.kernels.cuda.blocks import copy_blocks, swap_blocks
from headway.kernels.cuda.decode import decode_attention, decode_slots
from headway.kernels.cuda.merge import merge_partials
from headway.kernels.cuda.norm import add_rms_norm, rms_norm
from headway.kernels.cuda.plan import DecodeRows, plan_decode
from headway.kernels.cuda.prefill import prefill_attention
from headway.kernels.cuda.rotary import rotate, rotate_and_cache
from headway.kernels.cuda.sample import sample_tokens
from headway.kernels.cuda.table import DecodeTable

__all__ = [
    "DecodeRows",
    "DecodeTable",
    "add_rms_norm",
    "copy_blocks",
    "decode_attention",
    "decode_slots",
    "merge_partials",
    "plan_decode",
    "prefill_attention",
    "rms_norm",
    "rotate",
    "rotate_and_cache",
    "sample_tokens",
    "silu_mul",
    "swap_blocks",
]
