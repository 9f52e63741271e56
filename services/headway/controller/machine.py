"""The cores, memory and GPUs of this machine that workers share."""

import os
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import psutil

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"

_NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
_CGROUP = Path("/sys/fs/cgroup")
_TOPOLOGY = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineResources:
    """Cores that this process may run on, and memory that nobody uses; a container's limits count.

    Attributes:
        num_cores: whose time there is to use.
        cores: numbers of those that it may run on, neighbours side by side; more than `num_cores` where a quota limits
            the time and others use them too.
        gpus: those that it may use, as `CUDA_VISIBLE_DEVICES` names them; None where only CUDA itself could tell.
    """

    num_cores: int
    cores: tuple[int, ...]
    available_bytes: int
    gpus: tuple[str, ...] | None = None


def read_machine() -> MachineResources:
    cores = tuple(sorted(os.sched_getaffinity(0), key=_position))
    num_cores = len(cores)
    if (quota := _cpu_quota()) is not None:
        num_cores = max(1, min(num_cores, quota))
    available_bytes = psutil.virtual_memory().available
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        available_bytes = min(available_bytes, max(0, limit - used))
    gpus = find_gpus(os.environ.get(VISIBLE_GPUS), driver=_NVIDIA_GPUS)
    return MachineResources(num_cores=num_cores, cores=cores, available_bytes=available_bytes, gpus=gpus)


def find_gpus(visible: str | None, *, driver: Path) -> tuple[str, ...] | None:
    """Returns the GPUs that the variable lets CUDA see, or all that the driver lists."""
    if visible is not None:
        names = (name.strip() for name in visible.split(","))
        return tuple(takewhile(lambda name: name not in ("", "-1"), names))  # CUDA heeds none behind those either
    return tuple(str(index) for index, _ in enumerate(driver.iterdir())) if driver.is_dir() else None


def _position(core: int) -> tuple[int, int, int]:
    """Returns the core's package and its place there, which hardware threads of one core have in common."""
    package, place = (_number(_TOPOLOGY / f"cpu{core}/topology/{name}") for name in ("physical_package_id", "core_id"))
    return package or 0, place or 0, core


def _cpu_quota() -> int | None:
    fields = _read(_CGROUP / "cpu.max").split()  # "max 100000" or "150000 100000": microseconds per period
    return int(fields[0]) // int(fields[1]) if len(fields) == 2 and fields[0].isdigit() else None


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
