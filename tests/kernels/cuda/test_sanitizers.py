"""The kernels' source under AddressSanitizer and UBSan: no read or write outside what a kernel was given."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from headway.kernels.build import find_compiler
from headway.kernels.cuda.host import build_host

ROOT = Path(__file__).resolve().parents[3]


def runtime_of(name: str) -> Path:
    result = subprocess.run([find_compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return Path(result.stdout.strip())


def test_the_vectors_pass_under_sanitizers(build_directory: Path) -> None:
    runtime = runtime_of("libasan.so")
    if not runtime.is_absolute():
        pytest.skip("the compiler comes without AddressSanitizer")
    with FileLock(build_directory / "sanitized-lock"):
        library = build_host(build_directory, is_sanitized=True)
    result = subprocess.run(
        [sys.executable, "-m", "tests.kernels.cuda.sanitized", str(library)],
        cwd=ROOT,
        env={
            **os.environ,
            "LD_PRELOAD": str(runtime),
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-8000:]
