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


def detect_hardware(
    *, device: str, num_threads: int, memory_bytes: int, num_devices: int = 1, cuda: Cuda | None = None
) -> Hardware:
    """Names, sizes and versions that timings depend on. Imports torch only for a GPU.

    A worker has the first GPUs that it sees, one unless it is told otherwise. Whoever launches several workers shows
    each its own.

    Args:
        num_threads, memory_bytes: of each device.
        cuda: to be asked instead of torch.

    Raises:
        FailedPreconditionError: it sees too few GPUs.
    """
    software = {"torch": version("torch"), "headway": version_of_headway()}
    if device == "cuda":
        import torch

        cuda = cuda or torch.cuda
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if (num_found := cuda.device_count()) < num_devices:
            named = "" if visible is None else f" that CUDA_VISIBLE_DEVICES={visible} names"
            wanted = "a GPU" if num_devices == 1 else f"{num_devices} GPUs"
            there = "there is none" if num_found == 0 else f"there is {num_found}"
            raise FailedPreconditionError(
                f"The worker is to compute on {wanted}, and {there}{named}.",
                hint="Start fewer workers, name GPUs that are there, or take --device cpu.",
                field="device",
            )
        each = [cuda.get_device_properties(index) for index in range(num_devices)]
        software["cuda"] = str(torch.version.cuda)
        return Hardware(
            device="cuda",
            name=each[0].name,
            num_threads=num_threads,
            memory_bytes=min(memory_bytes, *(properties.total_memory for properties in each)),
            software=software,
            device_id=",".join(_visible_ids(visible, num_found)[:num_devices]),
            num_devices=num_devices,
        )
    return Hardware(
        device="cpu",
        name=_cpu_name(),
        num_threads=num_threads,
        memory_bytes=memory_bytes,
        software=software,
        num_devices=num_devices,
    )


def _visible_ids(visible: str | None, num_found: int) -> list[str]:
    """The ids of the GPUs that are seen, as CUDA_VISIBLE_DEVICES names them."""
    return [str(index) for index in range(num_found)] if visible is None else list(map(str.strip, visible.split(",")))


def version_of_headway() -> str:
    return version("headway")


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
