"""The compiled CPU kernels behind ctypes: which variant to load. Every kernel takes one packed struct of operands."""

import os
from ctypes import CDLL, c_char_p, c_int64
from types import MappingProxyType
from typing import Final

import torch

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.kernels.variants import build_stamp, isa_flags, library_path

ISA_VARIABLE = "HEADWAY_CPU_ISA"
_BUILD_HINT = "Run `python -m headway.kernels.build`."

DTYPE_CODES: Final = MappingProxyType({torch.float32: 0, torch.bfloat16: 1, torch.int8: 2})  # as in csrc/cpu/abi.h

_KERNELS = (
    "headway_rms_norm",
    "headway_silu_mul",
    "headway_rotate_and_cache",
    "headway_paged_attention",
    "headway_merge_partials",
    "headway_pack_linear",
    "headway_linear",
    "headway_sketch_linear",
    "headway_find_largest",
    "headway_embed",
    "headway_decode_inputs",
    "headway_replay",
    "headway_all_reduce",
    "headway_gather",
    "headway_all_to_all",
)


def load_library(isa: str) -> CDLL:
    """The variant's library with its kernels declared.

    Raises:
        FailedPreconditionError: it is not built, or from other sources than those beside it.
    """
    path = library_path(isa)
    if not path.exists():
        raise FailedPreconditionError(f"The CPU kernels ({path.name}) are not built.", hint=_BUILD_HINT)
    library = CDLL(str(path))
    library.headway_build_stamp.restype = c_char_p
    if library.headway_build_stamp() != build_stamp(isa).encode():
        raise FailedPreconditionError(f"{path.name} was built from other sources.", hint=_BUILD_HINT)
    for name in _KERNELS:
        getattr(library, name).argtypes = (c_char_p,)
    library.headway_replay.restype = c_int64
    library.headway_packed_size.argtypes = (c_int64, c_int64, c_int64, c_int64)
    library.headway_packed_size.restype = c_int64
    library.headway_sketch_size.argtypes = (c_int64, c_int64)
    library.headway_sketch_size.restype = c_int64
    return library


def supported_isas() -> list[str]:
    """Variants that this processor runs, the fastest first."""
    probe = load_library("portable")
    return [isa for isa in isa_flags() if probe.headway_supports_isa(isa.encode())]


def chosen_isa() -> str:
    """The fastest variant, unless the environment variable HEADWAY_CPU_ISA names one.

    Raises:
        InvalidArgumentError: the variable names a variant that this processor does not run.
    """
    supported = supported_isas()
    chosen = os.environ.get(ISA_VARIABLE) or supported[0]
    if chosen not in supported:
        raise InvalidArgumentError(
            f"{ISA_VARIABLE} is {chosen!r}, which this processor does not run.",
            hint=f"Choose one of {', '.join(supported)}, or leave it unset.",
            field=ISA_VARIABLE,
        )
    return chosen
