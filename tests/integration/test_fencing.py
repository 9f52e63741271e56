"""Two controllers over one stack: one acts, the other stands by, takes over, and `down` leaves none of them."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import httpx
import psutil
import pytest

from headway.client.token import TOKEN_VARIABLE, find_token
from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack, wait_for

WORKERS = ("worker-0", "worker-1")
_LOOK_EVERY_S = 0.1


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[RunningStack]:
    models = {"tiny": write_model(tmp_path / "model")}
    running = RunningStack(tmp_path / "state", models, "--emulate", "2xV100").start()
    yield running
    if (running.state_dir / "stack.json").exists():
        running.stop()


@contextmanager
def second_controller(stack: RunningStack) -> Iterator[subprocess.Popen[bytes]]:
    """One more, started by hand as the supervisor starts its own."""
    flags = ("--redis-url", stack.stack.redis_url, "--state-dir", str(stack.state_dir), "--member-id", "controller-2")
    with (stack.state_dir / "logs" / "controller-2.log").open("ab") as log:
        controller = subprocess.Popen(
            [sys.executable, "-m", "headway.controller", *flags],
            stdout=log,
            stderr=log,
            env={**os.environ, TOKEN_VARIABLE: str(find_token(stack.state_dir))},
        )
    try:
        yield controller
    finally:
        controller.kill()
        controller.wait()


def pids_of(state_dir: Path, name: str) -> list[int]:
    """Live processes that go by a name: all of them write to its log."""
    log, found = str(state_dir / "logs" / f"{name}.log"), []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and str(Path(f"/proc/{process.pid}/fd/1").readlink()) == log:
                found.append(process.pid)
    return found


class Watch:
    """Looks, from a thread, how many processes each worker is.

    Attributes:
        crowds: what was seen of a worker that was several.
        num_looks: how often it has looked.
    """

    def __init__(self, state_dir: Path) -> None:
        self.crowds: list[tuple[str, list[int]]] = []
        self.num_looks = 0
        self._state_dir = state_dir
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(_LOOK_EVERY_S):
            seen = [(name, pids_of(self._state_dir, name)) for name in WORKERS]
            self.crowds += [(name, pids) for name, pids in seen if len(pids) > 1]
            self.num_looks += 1


def is_another(state_dir: Path, name: str, killed: int) -> bool:
    return pids_of(state_dir, name) not in ([], [killed])


def test_no_worker_is_ever_two_and_down_leaves_none(stack: RunningStack) -> None:
    """Issue 30: two controllers ended each other's workers every 15 s. Workers are killed under both; then the first
    one stands still, the other takes over, and once the first one wakes up it is nobody's controller any more."""
    state_dir = stack.state_dir
    log = state_dir / "logs" / "controller-2.log"
    body = {"model": "tiny", "prompt": "a b c", "max_tokens": 4}
    first = stack.stack.controller
    assert first is not None
    with second_controller(stack) as other, Watch(state_dir) as watch:
        wait_for(lambda: "this one stands by" in log.read_text())
        for name in WORKERS:
            killed = stack.kill(name)
            wait_for(lambda name=name, killed=killed: is_another(state_dir, name, killed))  # type: ignore[misc]
        assert other.poll() is None
        os.kill(first.pid, signal.SIGSTOP)
        wait_for(lambda: "this controller has epoch" in log.read_text())
        killed = pids_of(state_dir, "worker-0")[0]
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: is_another(state_dir, "worker-0", killed))
        with suppress(ProcessLookupError):  # the supervisor has found out that it stands still, and ended it
            os.kill(first.pid, signal.SIGCONT)
        wait_for(lambda: stack.stack.controller not in (None, first))
        wait_for(lambda: httpx.post(f"{stack.url}/v1/completions", json=body, timeout=60).status_code == 200)
        stack.stop()
        other.wait(timeout=60)
        assert [pids_of(state_dir, name) for name in WORKERS] == [[], []]
    assert watch.crowds == []
    assert watch.num_looks > 10
