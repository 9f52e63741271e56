"""Processes on this machine.

Each runs in a session of its own, so neither a crash of the controller nor Ctrl-C in its terminal takes it along. Its
output is appended to `NAME.log`.
"""

import asyncio
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil

from headway.controller.process import Handle, ProcessSpec

_ROTATE_AT_BYTES = 50 * 1024**2
_POLL_EVERY_S = 0.02
# Start times are counted from the boot time, which moves a little when the clock is set.
_SAME_START_S = 2.0
_LAST_WORDS_BYTES = 4096


class LocalLauncher:
    """Launches processes here; their logs are in `log_directory`, which is made if it is missing."""

    def __init__(self, log_directory: Path) -> None:
        log_directory.mkdir(parents=True, exist_ok=True)
        self._log_directory = log_directory
        self._children: dict[str, tuple[Handle, subprocess.Popen[bytes]]] = {}  # the latest run of each name

    def log_path(self, name: str) -> Path:
        return self._log_directory / f"{name}.log"

    async def launch(self, spec: ProcessSpec) -> Handle:
        child = await asyncio.to_thread(self._start, spec)
        handle = Handle(name=spec.name, pid=child.pid, started_at_s=_started_at_s(child.pid))
        self._children[spec.name] = handle, child
        return handle

    async def is_alive(self, handle: Handle) -> bool:
        if (child := self._child(handle)) is not None:
            return child.poll() is None  # which also reaps it
        try:
            process = psutil.Process(handle.pid)
            is_same = abs(process.create_time() - handle.started_at_s) < _SAME_START_S
            return is_same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    async def stop(self, handle: Handle, *, grace_s: float) -> None:
        if not await self.is_alive(handle):
            return
        with suppress(ProcessLookupError):
            os.kill(handle.pid, signal.SIGTERM)
        deadline_s = time.monotonic() + grace_s
        while await self.is_alive(handle):
            if time.monotonic() > deadline_s:
                with suppress(ProcessLookupError):
                    os.killpg(handle.pid, signal.SIGKILL)
            await asyncio.sleep(_POLL_EVERY_S)

    async def last_words(self, handle: Handle) -> str:
        child, path = self._child(handle), self.log_path(handle.name)
        code = "unknown" if child is None or child.poll() is None else child.returncode
        last_line = _tail(path).rpartition("\n")[-1]
        return f"Exit status {code}; the end of {path}: {last_line}"

    def _child(self, handle: Handle) -> subprocess.Popen[bytes] | None:
        """None for a process that an earlier controller launched: it is not ours to wait for."""
        known, child = self._children.get(handle.name, (None, None))
        return child if known == handle else None

    def _start(self, spec: ProcessSpec) -> subprocess.Popen[bytes]:
        path = self.log_path(spec.name)
        if path.exists() and path.stat().st_size > _ROTATE_AT_BYTES:
            path.replace(path.with_suffix(".log.1"))
        with path.open("ab") as log:
            child = subprocess.Popen(
                spec.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | spec.environment,
                start_new_session=True,
            )
        if spec.niceness:
            with suppress(ProcessLookupError):  # before it has threads: each inherits from the one that starts it
                os.setpriority(os.PRIO_PROCESS, child.pid, os.nice(0) + spec.niceness)
        return child


def _started_at_s(pid: int) -> float:
    """Of a child that was not waited for yet: it is there, if only as a zombie."""
    return psutil.Process(pid).create_time()


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - _LAST_WORDS_BYTES))
        return log.read().decode(errors="replace").strip()
