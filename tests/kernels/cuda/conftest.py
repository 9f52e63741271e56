"""Fixtures: the CUDA sources, compiled for the CPU once for each content of theirs, serve the torch operators."""

from pathlib import Path

import pytest
from filelock import FileLock

from headway.kernels import devices
from headway.kernels.cuda.host import build_host, build_shim
from headway.kernels.cuda.kernels import CudaKernels
from headway.kernels.cuda.operators import serve_cpu

BUILD = Path(__file__).resolve().parents[3] / "build" / "cuda-host"


@pytest.fixture(scope="session")
def build_directory() -> Path:
    BUILD.mkdir(parents=True, exist_ok=True)
    return BUILD


@pytest.fixture(scope="session")
def host(build_directory: Path) -> CudaKernels:
    with FileLock(build_directory / "lock"):
        kernels = CudaKernels(build_host(build_directory))
    serve_cpu(kernels)
    return kernels


@pytest.fixture(scope="session")
def shim(build_directory: Path) -> Path:
    """The emulation, compiled once for all mutants."""
    with FileLock(build_directory / "shim-lock"):
        return build_shim(build_directory)


@pytest.fixture
def emulated_gpu(host: CudaKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU counts as a GPU: its kernels, the layout of the cache and the runner's steps are those of one."""
    host.set_schedule(0)
    monkeypatch.setitem(devices.KERNEL_SETS, "cpu", devices.KernelSet.CUDA)
