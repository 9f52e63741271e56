"""Processes by pid and start time, so that a reused pid is never signalled."""

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

from headway.client.stack import ProcessId

_SAME_START_S = 2.0  # the kernel's boot time, which start times are counted from, moves a little with the clock
_KILL_TIMEOUT_S = 5.0
_POLL_EVERY_S = 0.02


def identify(pid: int) -> ProcessId:
    return ProcessId(pid=pid, started_at_s=psutil.Process(pid).create_time())


def is_alive(process: ProcessId | None) -> bool:
    return process is not None and _find(process) is not None


def terminate(process: ProcessId) -> None:
    """Asks the process to end, if it still runs."""
    if (found := _find(process)) is not None:
        with suppress(psutil.NoSuchProcess):
            found.terminate()


def end_all(processes: Iterable[ProcessId], *, grace_s: float) -> None:
    """Terminates them all; kills those that are still there after `grace_s`. Returns when none is."""
    left = [process for process in processes if is_alive(process)]
    for process in left:
        terminate(process)
    left = _wait(left, timeout_s=grace_s)
    for process in left:
        if (found := _find(process)) is not None:
            with suppress(psutil.NoSuchProcess):
                found.kill()
    _wait(left, timeout_s=_KILL_TIMEOUT_S)


def wait_until_ended(process: ProcessId, *, timeout_s: float) -> bool:
    """Waits at most `timeout_s`, and returns whether the process has ended."""
    return not _wait([process], timeout_s=timeout_s)


def _wait(processes: list[ProcessId], *, timeout_s: float) -> list[ProcessId]:
    """Waits at most `timeout_s` and returns the processes that are still alive. A zombie counts as ended."""
    deadline_s = time.monotonic() + timeout_s
    while (left := [process for process in processes if is_alive(process)]) and time.monotonic() < deadline_s:
        time.sleep(_POLL_EVERY_S)
    return left


def _find(process: ProcessId) -> psutil.Process | None:
    try:
        found = psutil.Process(process.pid)
        if abs(found.create_time() - process.started_at_s) > _SAME_START_S or found.status() == psutil.STATUS_ZOMBIE:
            return None
    except psutil.NoSuchProcess:
        return None
    return found
