"""When a process of this machine started, in a way that no clock that is set can change."""

import os
from pathlib import Path

import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")
_START_TICKS = 19  # the place of `starttime` behind the command's name in /proc/PID/stat, see proc(5)


def process_start(pid: int) -> str | None:
    """The machine's boot, the namespace that pids are of, and the kernel's ticks between the boot and the start of the
    process; None where there is none.

    With the pid it names one process for sure: pids are used again, but not within a tick, and pid 1 of every container
    of a machine is another process. A time of day would not do:
    the kernel only counts ticks, and what is added to them moves when the clock is set.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return f"{_where()}/{text.rpartition(')')[2].split()[_START_TICKS]}"


def find_process(pid: int, *, start: str) -> psutil.Process | None:
    """The process with that pid and `process_start`; None where it has ended, if only as a zombie."""
    if process_start(pid) != start:
        return None
    try:
        found = psutil.Process(pid)
        return None if found.status() == psutil.STATUS_ZOMBIE else found
    except psutil.NoSuchProcess:
        return None


def own_run() -> str:
    """This process, by its pid and its start."""
    return f"{os.getpid()} {process_start(os.getpid())}"


def has_ended(run: str) -> bool:
    """Whether the process of an `own_run` is known to have ended. Of another machine, boot or container nothing is
    known."""
    pid, _, start = run.partition(" ")
    is_here = pid.isdecimal() and start.rpartition("/")[0] == _where()
    return is_here and find_process(int(pid), start=start) is None


def _where() -> str:
    """Where pids are unique: the machine's boot, and this container."""
    return f"{_BOOT_ID.read_text().strip()}/{_PID_NAMESPACE.readlink()}"
