"""What there is to share among workers."""

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")
_TOPOLOGY = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Cores that this process may run on, and memory that nobody uses; a container's limits count.

    Attributes:
        num_cores: whose time there is to use.
        cores: numbers of those that it may run on, neighbours side by side; more than `num_cores` where a quota limits
            the time and others use them too.
    """

    num_cores: int
    cores: tuple[int, ...]
    available_bytes: int


def read_machine() -> Machine:
    cores = tuple(sorted(os.sched_getaffinity(0), key=_position))
    num_cores = len(cores)
    if (quota := _cpu_quota()) is not None:
        num_cores = max(1, min(num_cores, quota))
    available_bytes = psutil.virtual_memory().available
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        available_bytes = min(available_bytes, max(0, limit - used))
    return Machine(num_cores=num_cores, cores=cores, available_bytes=available_bytes)


def _position(core: int) -> tuple[int, int, int]:
    """Its package and its place there, which hardware threads of one core have in common."""
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
