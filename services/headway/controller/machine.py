"""What there is to share among workers."""

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Cores that this process may run on, and memory that nobody uses; a container's limits count."""

    num_cores: int
    available_bytes: int


def read_machine() -> Machine:
    num_cores = len(os.sched_getaffinity(0))
    if (quota := _cpu_quota()) is not None:
        num_cores = max(1, min(num_cores, quota))
    available_bytes = psutil.virtual_memory().available
    limit, used = _read_number("memory.max"), _read_number("memory.current")
    if limit is not None and used is not None:
        available_bytes = min(available_bytes, max(0, limit - used))
    return Machine(num_cores=num_cores, available_bytes=available_bytes)


def _cpu_quota() -> int | None:
    fields = _read("cpu.max").split()  # "max 100000" or "150000 100000": microseconds per period
    return int(fields[0]) // int(fields[1]) if len(fields) == 2 and fields[0].isdigit() else None


def _read_number(name: str) -> int | None:
    text = _read(name)
    return int(text) if text.isdigit() else None


def _read(name: str) -> str:
    try:
        return (_CGROUP / name).read_text().strip()
    except OSError:
        return ""
