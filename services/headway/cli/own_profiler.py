"""A profiler and a worker for as long as one command runs, where no stack does. They share the stack's state."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from headway.cli.claim import claim
from headway.cli.process import end_all, identify, is_alive
from headway.client.stack import ProcessId
from headway.client.token import TOKEN_VARIABLE, make_token
from headway.core.codec import from_document, to_document
from headway.core.errors import AlreadyExistsError, UnavailableError
from headway.core.tls_files import without_tls
from headway.store.embedded import EmbeddedRedis
from headway.store.membership import Membership
from headway.store.redis import Database

_NAMESPACE = "headway"
_FILE = "profile.json"
_MEMORY_SHARE = 0.8
_OPENMP_SPINS = "1000"
"""As of a stack's workers: threads wait for each other by spinning for a short while, then sleep."""
_START_S = 60.0
_LOOK_EVERY_S = 0.05
_GRACE_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """The command and its child processes, recorded so that a later command ends what a killed one left."""

    owner: ProcessId
    processes: tuple[ProcessId, ...]


@asynccontextmanager
async def own_profiler(state_dir: Path, *, device: str = "cpu", num_threads: int = 0) -> AsyncIterator[str]:
    """Starts a profiler with one worker, and yields its host:port. Calls need the state directory's token.

    Args:
        num_threads: threads that the worker computes with; 0 for all cores.

    Raises:
        AlreadyExistsError: another command does the same with this state directory.
        UnavailableError: they do not start.
    """
    claim(state_dir)
    _end_orphans(state_dir)
    redis = EmbeddedRedis(state_dir / "redis")
    await asyncio.to_thread(redis.start)
    log_path = state_dir / "logs" / "profile.log"
    log_path.parent.mkdir(exist_ok=True)
    children: list[subprocess.Popen[bytes]] = []
    try:
        started = _start(redis.url, log_path, device=device, num_threads=num_threads, token=make_token(state_dir))
        children.extend(started)
        _write(state_dir, (redis.pid, *(child.pid for child in children)))
        yield await _endpoint(redis.url, children, log_path)
    finally:
        for child in children:
            child.terminate()
        await asyncio.to_thread(_wait, children)
        await asyncio.to_thread(redis.stop)
        (state_dir / _FILE).unlink(missing_ok=True)


def _start(
    redis_url: str, log_path: Path, *, device: str, num_threads: int, token: str
) -> Iterable[subprocess.Popen[bytes]]:
    """Starts both processes in sessions of their own: Ctrl-C is for this process, which ends them."""
    threads = num_threads or len(os.sched_getaffinity(0))
    environment = without_tls(os.environ) | {
        "OMP_NUM_THREADS": str(threads),
        "GOMP_SPINCOUNT": _OPENMP_SPINS,
        TOKEN_VARIABLE: token,
    }
    with log_path.open("ab") as log:
        for command in _commands(redis_url, device=device, num_threads=threads):
            yield subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


def _commands(redis_url: str, *, device: str, num_threads: int) -> Iterable[list[str]]:
    shared = ("--redis-url", redis_url, "--namespace", _NAMESPACE, "--log-level", "warning")
    memory_bytes = int(_MEMORY_SHARE * psutil.virtual_memory().available) if device == "cpu" else 1 << 50
    python = (sys.executable, "-m")
    yield [*python, "headway.profiler", *shared]
    yield [
        *(*python, "headway.worker", *shared),
        *("--member-id", "worker-0", "--device", device),
        *("--num-threads", str(num_threads), "--memory-bytes", str(memory_bytes)),
    ]


async def _endpoint(redis_url: str, children: Iterable[subprocess.Popen[bytes]], log_path: Path) -> str:
    """Waits until both have registered, and returns the profiler's host:port."""
    database = Database.connect(redis_url, namespace=_NAMESPACE)
    deadline_s = time.monotonic() + _START_S
    try:
        while time.monotonic() < deadline_s and all(child.poll() is None for child in children):
            members = {member.kind: member for member in await Membership(database).members()}
            if members.keys() >= {"profiler", "worker"}:
                return members["profiler"].endpoint
            await asyncio.sleep(_LOOK_EVERY_S)
    finally:
        await database.close()
    raise UnavailableError("The profiler did not start.", hint=f"See {log_path}.")


def _end_orphans(state_dir: Path) -> None:
    path = state_dir / _FILE
    if not path.exists():
        return
    record = from_document(_Record, json.loads(path.read_text()))
    if is_alive(record.owner):
        raise AlreadyExistsError(
            f"Another `headway profile` runs with its state in {state_dir}.",
            hint="Wait until it has ended, or choose another --state-dir.",
        )
    end_all(record.processes, grace_s=_GRACE_S)
    path.unlink(missing_ok=True)


def _write(state_dir: Path, pids: Iterable[int]) -> None:
    record = _Record(owner=identify(os.getpid()), processes=tuple(identify(pid) for pid in pids))
    (state_dir / _FILE).write_text(json.dumps(to_document(record)))


def _wait(children: Iterable[subprocess.Popen[bytes]]) -> None:
    for child in children:
        try:
            child.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
