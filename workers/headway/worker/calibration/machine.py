"""The machine, and the versions that timings on it depend on."""

import os
import platform
import re
import socket
from dataclasses import replace
from pathlib import Path

import psutil

from headway.core.hardware.profile import Machine
from headway.worker.hardware import detect_hardware

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_DRIVER = Path("/proc/driver/nvidia/version")


def detect_machine(device: str, *, num_threads: int) -> Machine:
    """Imports torch only for a GPU. The libraries that compute on a CPU are part of torch's version."""
    memory_bytes = psutil.virtual_memory().total
    hardware = detect_hardware(device=device, num_threads=num_threads, memory_bytes=memory_bytes)
    software = hardware.software | {"python": platform.python_version(), "kernel": platform.release()}
    if device == "cuda" and _DRIVER.exists() and (driver := re.search(r"\d+\.[\d.]+", _DRIVER.read_text())):
        software["driver"] = driver[0]
    return Machine(
        hardware=replace(hardware, software=software),
        machine=socket.gethostname(),
        cache_bytes=_cache_bytes(device),
        num_cores=len(os.sched_getaffinity(0)),
        num_gpus=_num_gpus(device),
    )


def _num_gpus(device: str) -> int:
    if device == "cpu":
        return 0
    import torch

    return torch.cuda.device_count()


def _cache_bytes(device: str) -> int:
    if device == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(0).L2_cache_size)
    sizes = [int(file.read_text().strip().removesuffix("K")) for file in _CACHES.glob("index*/size")]
    return max(sizes, default=0) * 1024
