"""Processes on this machine.

Each runs in a session of its own, so neither a crash of the controller nor Ctrl-C in its terminal takes it along. Its
output is appended to `NAME.log`. What has modules to preload is forked from a process that has them: to import torch
takes seconds, to fork takes none, and so a worker that died is back at once.
"""

import asyncio
import logging
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headway.controller.launchers.forkserver.forkserver import Forkserver
from headway.controller.launchers.forkserver.order import Order
from headway.controller.process import Handle, ProcessSpec
from headway.core.errors import UnavailableError
from headway.observe.log_writers import find_log_writers
from headway.observe.process_start import find_process, process_start

log = logging.getLogger(__name__)

_ROTATE_AT_BYTES = 50 * 1024**2
_POLL_EVERY_S = 0.02
_LAST_WORDS_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _Forked:
    """A child of a forkserver; has what we use of `Popen`."""

    server: Forkserver
    pid: int

    def poll(self) -> int | None:
        return self.server.exit_status(self.pid)


class LocalLauncher:
    """Launches processes here; their logs are in `log_directory`, which is made if it is missing."""

    def __init__(self, log_directory: Path) -> None:
        log_directory.mkdir(parents=True, exist_ok=True)
        self._log_directory = log_directory
        self._children: dict[str, tuple[Handle, subprocess.Popen[bytes] | _Forked]] = {}  # the latest run of each name
        self._forkservers: dict[tuple[tuple[str, str], ...], Forkserver] = {}  # by their runtime

    def log_path(self, name: str) -> Path:
        return self._log_directory / f"{name}.log"

    async def launch(self, spec: ProcessSpec) -> Handle:
        path = self.log_path(spec.name)
        if path.exists() and path.stat().st_size > _ROTATE_AT_BYTES:
            path.replace(path.with_suffix(".log.1"))
        path.touch()
        if spec.preload:
            child = await asyncio.to_thread(_fork, self._forkserver(spec), spec, path)
        else:
            child = await asyncio.to_thread(_start, spec, path)
        handle = Handle(name=spec.name, pid=child.pid, start=_start_of(child.pid), started_at_s=time.time())
        self._children[spec.name] = handle, child
        return handle

    async def running(self) -> list[Handle]:
        """By their logs: a controller that was killed may not have recorded what it had just launched."""
        writers = await asyncio.to_thread(find_log_writers, self._log_directory)
        return [Handle(name=each.name, pid=each.pid, start=each.start, started_at_s=0.0) for each in writers]

    async def is_alive(self, handle: Handle) -> bool:
        if (child := self._child(handle)) is not None:
            return child.poll() is None  # which also reaps it
        return find_process(handle.pid, start=handle.start) is not None

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
        status = None if child is None else child.poll()
        code = "unknown" if status is None else status
        last_line = _tail(path).rpartition("\n")[-1]
        return f"Exit status {code}; the end of {path}: {last_line}"

    def _child(self, handle: Handle) -> subprocess.Popen[bytes] | _Forked | None:
        """Returns a child that this launcher started. None for a process that an earlier controller or a lost
        forkserver launched: it is not ours to wait for.
        """
        known, child = self._children.get(handle.name, (None, None))
        if known != handle or (isinstance(child, _Forked) and not child.server.is_alive):
            return None
        return child

    def _forkserver(self, spec: ProcessSpec) -> Forkserver:
        key = tuple(sorted(spec.runtime.items()))
        server = self._forkservers.get(key)
        if server is None or not server.is_alive:
            server = self._forkservers[key] = Forkserver(spec.runtime)
        return server


def _fork(server: Forkserver, spec: ProcessSpec, log_path: Path) -> subprocess.Popen[bytes] | _Forked:
    """Blocks while the forkserver imports what it has not yet."""
    order = Order(
        preload=spec.preload,
        command=spec.command,
        environment=os.environ | spec.environment | spec.runtime,
        log_path=str(log_path),
        niceness=spec.niceness,
        cores=spec.cores,
    )
    try:
        return _Forked(server, server.fork(order))
    except UnavailableError as error:
        log.warning("%s is started without a forkserver: %s", spec.name, error)
        return _start(spec, log_path)


def _start(spec: ProcessSpec, log_path: Path) -> subprocess.Popen[bytes]:
    with log_path.open("ab") as output:
        child = subprocess.Popen(
            spec.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | spec.environment | spec.runtime,
            start_new_session=True,
        )
    with suppress(ProcessLookupError):  # before it has threads: each inherits from the one that starts it
        if spec.niceness:
            os.setpriority(os.PRIO_PROCESS, child.pid, os.nice(0) + spec.niceness)
        if spec.cores:
            os.sched_setaffinity(child.pid, spec.cores)
    return child


def _start_of(pid: int) -> str:
    """The start of a child, which was not waited for yet: it exists, if only as a zombie."""
    start = process_start(pid)
    assert start is not None, "it was reaped"
    return start


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - _LAST_WORDS_BYTES))
        return log.read().decode(errors="replace").strip()
