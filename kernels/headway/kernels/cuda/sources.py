"""The CUDA sources and how they are compiled: by nvcc for GPUs, and by a C++ compiler for the CPU."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
SOURCES = PACKAGE / "csrc" / "cuda"
GPU_LIBRARY = PACKAGE / "libheadway_cuda.so"
GPU_REPORT = PACKAGE / "libheadway_cuda.ptxas"  # what the compiler said of its kernels

ARCHITECTURES = ("80", "90a", "100")
NVCC_FLAGS = ("-std=c++17", "-O3", "-Xcompiler=-fPIC,-fvisibility=hidden", "--cudart=static", "-Xptxas=-v")
HOST_FLAGS = (
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",  # nvcc's rule for device code
    "-Wall",
    "-Wextra",
    "-Wno-unknown-pragmas",
)
SANITIZER_FLAGS = ("-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def units(sources: Path = SOURCES) -> dict[str, str]:
    """The text of what is compiled, by name: attention for each size of heads by itself, because it takes longest, and
    the rest as one, which reads the headers once."""
    files = sorted(sources.glob("*.cu"))
    sizes = {file.stem: [file] for file in files if file.stem[-1].isdigit()}
    rest = {"rest": [file for file in files if file.stem not in sizes]}
    return {name: "".join(f'#include "{file.name}"\n' for file in parts) for name, parts in (sizes | rest).items()}


def stamp(flags: Sequence[str], sources: Path = SOURCES) -> str:
    """A hash that changes when a source or a flag does; a library carries the stamp that it was built with."""
    digest = hashlib.sha256(" ".join(flags).encode())
    for source in sorted(path for path in sources.rglob("*") if path.suffix in (".cu", ".cpp", ".h")):
        digest.update(source.relative_to(sources).as_posix().encode())
        digest.update(source.read_bytes())
    return f"headway-cuda-{digest.hexdigest()[:32]}"


def gpu_stamp() -> str:
    return stamp((*NVCC_FLAGS, *ARCHITECTURES))
