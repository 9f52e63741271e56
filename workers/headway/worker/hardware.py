"""The device, threads and memory that this worker runs on."""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from headway.core.cluster import Hardware
from headway.core.engine_kind import EngineKind
from headway.core.engine_server import ServerFacts
from headway.core.errors import FailedPreconditionError

_BOUNDLESS_BYTES = 2**50
"""The server has what it needs already."""


def emulated_hardware(name: str, *, memory_bytes: int) -> Hardware:
    """A device of the catalogue that isn't here."""
    return Hardware(
        device="cuda",
        name=name,
        num_threads=1,
        memory_bytes=memory_bytes,
        software={"headway": version_of_headway()},
        is_emulated=True,
    )


def server_hardware(served: ServerFacts, *, version: str) -> Hardware:
    """What a worker says of itself that stands in for a server: nobody knows what that computes on.

    Args:
        version: of the server's software.
    """
    return Hardware(
        device="cpu",
        name=_cpu_name(),
        num_threads=1,
        memory_bytes=_BOUNDLESS_BYTES,
        software={"headway": version_of_headway(), EngineKind.VLLM_SERVER: version},
        server=served,
    )


class CudaProperties(Protocol):
    """The name and memory of a GPU."""

    name: str
    total_memory: int


class Cuda(Protocol):
    """The part of `torch.cuda` that this worker asks: the GPUs that `CUDA_VISIBLE_DEVICES` lets the process see,
    numbered from 0.
    """

    def device_count(self) -> int: ...

    def get_device_properties(self, device: int) -> CudaProperties: ...


def detect_hardware(*, device: str, num_threads: int, memory_bytes: int, cuda: Cuda | None = None) -> Hardware:
    """Names, sizes and versions that timings depend on. Imports torch only for a GPU.

    A worker has one GPU: the first that it sees. Whoever launches several shows each its own.

    Args:
        cuda: to be asked instead of torch.

    Raises:
        FailedPreconditionError: it sees no GPU.
    """
    software = {"torch": version("torch"), "headway": version_of_headway()}
    if device == "cuda":
        import torch

        cuda = cuda or torch.cuda
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if cuda.device_count() == 0:
            named = "" if visible is None else f" that CUDA_VISIBLE_DEVICES={visible} names"
            raise FailedPreconditionError(
                f"The worker is to compute on a GPU, and there is none{named}.",
                hint="Start fewer workers, name GPUs that are there, or take --device cpu.",
                field="device",
            )
        properties = cuda.get_device_properties(0)
        software["cuda"] = str(torch.version.cuda)
        return Hardware(
            device="cuda",
            name=properties.name,
            num_threads=num_threads,
            memory_bytes=min(memory_bytes, properties.total_memory),
            software=software,
            device_id="0" if visible is None else visible.split(",")[0].strip(),
        )
    return Hardware(
        device="cpu",
        name=_cpu_name(),
        num_threads=num_threads,
        memory_bytes=memory_bytes,
        software=software,
    )


def version_of_headway() -> str:
    return version("headway")


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
