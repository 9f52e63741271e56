"""Compiles the CUDA sources for the CPU, with the emulation of csrc/cuda/shim: what the tests run without a GPU."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headway.core.errors import FailedPreconditionError
from headway.kernels.build import find_compiler
from headway.kernels.cuda.sources import HOST_FLAGS, SANITIZER_FLAGS, SOURCES, stamp, units

SHIM = '#include "shim/cta.cpp"\n#include "shim/fiber.cpp"\n'


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise FailedPreconditionError(
            f"The compiler failed on the CUDA sources:\n{result.stderr}",
            hint="g++ 9 or later is known to work; set CXX to choose another.",
        )


def build_host(
    directory: Path,
    *,
    is_sanitized: bool = False,
    sources: Path = SOURCES,
    texts: Mapping[str, str] | None = None,
    objects: Sequence[Path] = (),
) -> Path:
    """The library in `directory`, compiled unless it is there already; side by side where there are cores.

    Args:
        is_sanitized: with AddressSanitizer and UBSan; the process that loads it needs the former's runtime preloaded.
        sources: a folder like csrc/cuda.
        texts: what is compiled, by name; None for all of `sources` and the emulation.
        objects: what is linked with it.

    Raises:
        FailedPreconditionError: no compiler, or it failed.
    """
    texts = units(sources) | {"shim": SHIM} if texts is None else texts
    command = _command(is_sanitized=is_sanitized)
    build_stamp = stamp((*command, *texts.values()), sources)
    library = directory / f"{build_stamp}.so"
    if library.exists():
        return library
    workspace = directory / f"{library.stem}.{os.getpid()}"
    workspace.mkdir(parents=True)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        compiled = pool.map(
            lambda name: _compile(command, texts[name], workspace / f"unit_{name}.o", sources, build_stamp), texts
        )
    _run([*command, "-shared", *map(str, (*compiled, *objects)), "-o", str(workspace / "library.so")])
    (workspace / "library.so").replace(library)
    shutil.rmtree(workspace)
    return library


def build_shim(directory: Path) -> Path:
    """The emulation as an object in `directory`, compiled unless it is there: for libraries of single kernels."""
    command = _command(is_sanitized=False)
    build_stamp = stamp((*command, SHIM))
    shim = directory / f"{build_stamp}.o"
    if not shim.exists():
        directory.mkdir(parents=True, exist_ok=True)
        _compile(command, SHIM, directory / f"shim.{os.getpid()}.o", SOURCES, build_stamp).replace(shim)
    return shim


def _command(*, is_sanitized: bool) -> list[str]:
    return [find_compiler(), *HOST_FLAGS, *(SANITIZER_FLAGS if is_sanitized else ())]


def _compile(command: Sequence[str], text: str, output: Path, sources: Path, build_stamp: str) -> Path:
    file = output.with_suffix(".cu")
    file.write_text(text)
    options = [f"-I{sources}", f'-DHEADWAY_BUILD_STAMP="{build_stamp}"', "-x", "c++", "-c"]
    _run([*command, *options, str(file), "-o", str(output)])
    return output
