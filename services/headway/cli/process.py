"""Processes by pid and start time, so that a reused pid is never signalled."""

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

from headway.client.stack import ProcessId
from headway.observe.process_start import find_process, process_start

_KILL_TIMEOUT_S = 5.0
_POLL_EVERY_S = 0.02


def identify(pid: int) -> ProcessId:
    """psutil.NoSuchProcess where there is none."""
    start = process_start(pid)
    if start is None:
        raise psutil.NoSuchProcess(pid)
    return ProcessId(pid=pid, start=start)


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
    return find_process(process.pid, start=process.start)
