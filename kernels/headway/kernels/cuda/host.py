"""Compiles the CUDA sources for the CPU, with the emulation of csrc/cuda/shim: what the tests run without a GPU."""

import os
import shutil
import subprocess
from collections.abc import Mapping
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
    directory: Path, *, is_sanitized: bool = False, sources: Path = SOURCES, texts: Mapping[str, str] | None = None
) -> Path:
    """The library in `directory`, compiled unless it is there already; side by side where there are cores.

    Args:
        is_sanitized: with AddressSanitizer and UBSan; the process that loads it needs the former's runtime preloaded.
        sources: a folder like csrc/cuda.
        texts: what is compiled, by name; None for all of `sources`.

    Raises:
        FailedPreconditionError: no compiler, or it failed.
    """
    compiler = find_compiler()
    texts = units(sources) | {"shim": SHIM} if texts is None else texts
    flags = (*HOST_FLAGS, *(SANITIZER_FLAGS if is_sanitized else ()))
    build_stamp = stamp((compiler, *flags, *texts.values()), sources)
    library = directory / f"{build_stamp}.so"
    if library.exists():
        return library
    objects = directory / f"{library.stem}.{os.getpid()}"
    objects.mkdir(parents=True)
    files = [objects / f"unit_{name}.cu" for name in texts]
    for file, text in zip(files, texts.values(), strict=True):
        file.write_text(text)
    outputs = [file.with_suffix(".o") for file in files]
    options = [*flags, f"-I{sources}", f'-DHEADWAY_BUILD_STAMP="{build_stamp}"', "-x", "c++", "-c"]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        commands = [[compiler, *options, str(file), "-o", str(out)] for file, out in zip(files, outputs, strict=True)]
        list(pool.map(_run, commands))
    _run([compiler, *flags, "-shared", *(str(output) for output in outputs), "-o", str(objects / "library.so")])
    (objects / "library.so").replace(library)
    shutil.rmtree(objects)
    return library
