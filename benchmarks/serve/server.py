"""A server under test: started, waited for, measured and ended, with every process that it made."""

import asyncio
import contextlib
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.serve.client import CompletionClient
from benchmarks.serve.peers import Deployment, Launch
from benchmarks.serve.workload import Request

START_LIMIT_S = 600.0
POLL_S = 0.05
STOP_LIMIT_S = 30.0
LOG_TAIL_LINES = 30
PROBE = Request(0.0, (11, 12, 13, 14), 2)


class ServerError(Exception):
    """The server did not do what the benchmark needs; the message says what, with the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimes:
    """Seconds from the start of the process until the ready path answered, and until a first token arrived."""

    ready_s: float
    first_token_s: float


class Server:
    """One server process and its descendants."""

    def __init__(self, name: str, *, deployment: Deployment, launch: Launch, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self.url = deployment.url
        self.client = CompletionClient(deployment.url, model=deployment.model_name)
        self._launch = launch
        self._process: psutil.Popen | None = None
        self._family: set[psutil.Process] = set()

    async def start(self) -> StartTimes:
        """Start the server and wait for its first token; raises ServerError if none comes."""
        start_s = time.perf_counter()
        with self.log_path.open("wb") as log:
            self._process = psutil.Popen(
                self._launch.command,
                env=dict(self._launch.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        await self._wait_ready()
        ready_s = time.perf_counter() - start_s
        outcome = (await self.client.prepare(PROBE)(start_s))()
        if outcome.error:
            raise ServerError(f"{self.name} is ready but fails its first request: {outcome.error}")
        return StartTimes(ready_s=ready_s, first_token_s=outcome.token_times_s[0])

    def processes(self) -> list[psutil.Process]:
        """The process and its descendants, those included that have lost their parent since the last look."""
        assert self._process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            self._family.add(psutil.Process(self._process.pid))
        for process in tuple(self._family):
            with contextlib.suppress(psutil.NoSuchProcess):
                self._family.update(process.children(recursive=True))
        self._family = {process for process in self._family if process.is_running()}
        return list(self._family)

    def pss_bytes(self) -> int:
        """Memory of all its processes, pages that they share counted once."""
        return sum(pss_bytes(process) for process in self.processes())

    async def idle_cpu_share(self, *, seconds: float) -> float:
        """Cores that it uses while nobody asks it anything."""
        before_s = self._cpu_seconds()
        await asyncio.sleep(seconds)
        return max(self._cpu_seconds() - before_s, 0.0) / seconds

    async def stop(self, *, limit_s: float = STOP_LIMIT_S) -> None:
        """End it politely; kill whatever of it is still there after `limit_s`."""
        self.client.close()
        if self._process is None:
            return
        family = self.processes()
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.terminate()
        _, survivors = await asyncio.to_thread(psutil.wait_procs, family, limit_s)
        for process in survivors:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        await asyncio.to_thread(psutil.wait_procs, survivors, limit_s)

    async def _wait_ready(self) -> None:
        assert self._process is not None
        give_up_s = time.perf_counter() + START_LIMIT_S
        while not await self.client.is_ready(self._launch.ready_path):
            if self._process.poll() is not None:
                raise ServerError(f"{self.name} ended with code {self._process.returncode}:\n{self._log_tail()}")
            if time.perf_counter() > give_up_s:
                raise ServerError(f"{self.name} is not ready after {START_LIMIT_S:g} s:\n{self._log_tail()}")
            await asyncio.sleep(POLL_S)

    def _cpu_seconds(self) -> float:
        total_s = 0.0
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total_s += times.user + times.system
        return total_s

    def _log_tail(self) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])


def pss_bytes(process: psutil.Process) -> int:
    """Proportional set size by /proc/PID/smaps_rollup; 0 for a process that has just ended."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
