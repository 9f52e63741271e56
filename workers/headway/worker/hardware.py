"""What this worker runs on."""

import platform
from importlib.metadata import version
from pathlib import Path

from headway.core.cluster import Hardware
from headway.worker.config import WorkerConfig


def detect_hardware(config: WorkerConfig) -> Hardware:
    """Names, sizes and versions that timings depend on. Imports torch only for a GPU."""
    software = {"torch": version("torch"), "headway": version_of_headway()}
    if config.device == "cuda":
        import torch

        properties = torch.cuda.get_device_properties(0)
        software["cuda"] = str(torch.version.cuda)
        return Hardware(
            device="cuda",
            name=properties.name,
            num_threads=config.num_threads,
            memory_bytes=min(config.memory_bytes, properties.total_memory),
            software=software,
        )
    return Hardware(
        device="cpu",
        name=_cpu_name(),
        num_threads=config.num_threads,
        memory_bytes=config.memory_bytes,
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
