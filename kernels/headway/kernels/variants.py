"""The CPU library's variants: one shared library for each instruction set, from the same sources."""

import hashlib
import platform
from pathlib import Path

PACKAGE = Path(__file__).parent
SOURCES = PACKAGE / "csrc" / "cpu"

COMMON_FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=fast",  # a * b + c is one instruction where there is one
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-fno-gnu-unique",  # variants loaded side by side share nothing
    "-fPIC",
    "-shared",
    "-pthread",
    "-Wall",
    "-Wextra",
)
_AVX512_FLAGS = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mprefer-vector-width=512")
_AVX512_BF16_FLAGS = (*_AVX512_FLAGS, "-mavx512bf16", "-mavx512vnni")
_X86_FLAGS = {
    "amx": (*_AVX512_BF16_FLAGS, "-mamx-tile", "-mamx-bf16", "-mamx-int8"),
    "avx512_bf16": _AVX512_BF16_FLAGS,
    "avx512": _AVX512_FLAGS,
    "avx2": ("-mavx2", "-mfma"),
}


def isa_flags() -> dict[str, tuple[str, ...]]:
    """Compiler flags of every variant that exists for this machine's architecture, the fastest first."""
    x86 = _X86_FLAGS if platform.machine() in ("x86_64", "AMD64") else {}
    return {**x86, "portable": ()}


def library_path(isa: str) -> Path:
    return PACKAGE / f"libheadway_{isa}.so"


def build_stamp(isa: str) -> str:
    """A hash that changes when a source or a flag of the variant does; the library carries the stamp that it was built
    with."""
    digest = hashlib.sha256(" ".join((*COMMON_FLAGS, *isa_flags()[isa])).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return f"headway-{isa}-{digest.hexdigest()[:32]}"
