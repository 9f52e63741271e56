"""What this worker runs on."""

import platform
from importlib.metadata import version
from pathlib import Path

from headway.core.cluster import Hardware


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


def detect_hardware(*, device: str, num_threads: int, memory_bytes: int) -> Hardware:
    """Names, sizes and versions that timings depend on. Imports torch only for a GPU."""
    software = {"torch": version("torch"), "headway": version_of_headway()}
    if device == "cuda":
        import torch

        properties = torch.cuda.get_device_properties(0)
        software["cuda"] = str(torch.version.cuda)
        return Hardware(
            device="cuda",
            name=properties.name,
            num_threads=num_threads,
            memory_bytes=min(memory_bytes, properties.total_memory),
            software=software,
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
