"""Compiles the CUDA kernels for GPUs: `python -m headway.kernels.cuda.build`. What is up to date is left alone."""

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headway.core.errors import FailedPreconditionError, HeadwayError
from headway.kernels.build import find_compiler
from headway.kernels.cuda.resources import BUDGETS, parse_report, write_budgets
from headway.kernels.cuda.sources import ARCHITECTURES, GPU_LIBRARY, GPU_REPORT, NVCC_FLAGS, SOURCES, gpu_stamp, units


def find_tool(name: str) -> str | None:
    """The program of that name in $CUDA_HOME/bin, else on the PATH."""
    home = os.environ.get("CUDA_HOME")
    return (shutil.which(name, path=str(Path(home) / "bin")) if home else None) or shutil.which(name)


def find_nvcc() -> str:
    """The CUDA compiler; raises FailedPreconditionError where there is none."""
    path = find_tool("nvcc")
    if path is None:
        raise FailedPreconditionError(
            "No nvcc found, in $CUDA_HOME/bin or on the PATH.",
            hint="Run `make cuda`, which installs it from wheels, or set CUDA_HOME to a CUDA toolkit, 12.8 or later.",
        )
    return path


def is_current() -> bool:
    """True if the library and the compiler's report are of the sources beside them."""
    return GPU_LIBRARY.exists() and GPU_REPORT.exists() and gpu_stamp().encode() in GPU_LIBRARY.read_bytes()


def _run(command: list[str]) -> str:
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode:
        raise FailedPreconditionError(f"nvcc failed on the CUDA kernels:\n{result.stdout}")
    return result.stdout


def build_gpu() -> bool:
    """Compiles the library for all architectures if it is out of date, and keeps what the compiler reports.

    Returns:
        Whether it was compiled.

    Raises:
        FailedPreconditionError: no nvcc, or it failed.
    """
    if is_current():
        return False
    nvcc = [find_nvcc(), "-ccbin", find_compiler()]
    targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ARCHITECTURES]
    stamped = f'-DHEADWAY_BUILD_STAMP="{gpu_stamp()}"'
    objects = GPU_LIBRARY.with_suffix(f".{os.getpid()}")
    objects.mkdir()
    try:
        commands = []
        for name, text in units().items():
            file = objects / f"unit_{name}.cu"
            file.write_text(text)
            output = str(file.with_suffix(".o"))
            commands.append([*nvcc, *NVCC_FLAGS, *targets, stamped, f"-I{SOURCES}", "-c", str(file), "-o", output])
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            reports = list(pool.map(_run, commands))
        library = objects / "library.so"
        runtime = f"-L{Path(nvcc[0]).resolve().parents[1] / 'lib'}"  # where the wheels have it; toolkits: lib64
        _run([*nvcc, "-shared", "--cudart=static", runtime, *map(str, sorted(objects.glob("*.o"))), "-o", str(library)])
        GPU_REPORT.write_text("".join(reports))
        library.replace(GPU_LIBRARY)
    finally:
        shutil.rmtree(objects)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Compiles the CUDA kernels for GPUs.")
    parser.add_argument("--record", action="store_true", help=f"write what every kernel uses to {BUDGETS.name}")
    arguments = parser.parse_args()
    try:
        is_built = build_gpu()
    except HeadwayError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.record:
        write_budgets(parse_report(GPU_REPORT.read_text()))
    architectures = ", ".join(f"sm_{arch}" for arch in ARCHITECTURES)
    print(f"CUDA kernels: {'built' if is_built else 'up to date'} for {architectures}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
