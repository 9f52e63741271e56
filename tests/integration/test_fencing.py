"""Two controllers over one stack: one acts, the other stands by, takes over, and `down` leaves none of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from headway.client.token import TOKEN_VARIABLE, find_token
from tests.checkpoints import make_checkpoint
from tests.integration.stack import RunningStack, wait_for

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[RunningStack]:
    model = make_checkpoint(tmp_path / "models" / "tiny", "llama")
    running = RunningStack(tmp_path / "state", {"tiny": model}, "--workers", "2", "--no-profile").start()
    running.wait_until_ready()
    try:
        yield running
    finally:
        running.stop()


def second_controller(stack: RunningStack) -> subprocess.Popen[bytes]:
    """One more, started by hand as the supervisor starts its own."""
    flags = ("--redis-url", stack.stack.redis_url, "--state-dir", str(stack.state_dir), "--member-id", "controller-2")
    with (stack.state_dir / "logs" / "controller-2.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "headway.controller", *flags],
            stdout=log,
            stderr=log,
            env={**os.environ, TOKEN_VARIABLE: str(find_token(stack.state_dir))},
        )


def pids_of(state_dir: Path, name: str) -> list[int]:
    """Live processes that go by a name: all of them write to its log. One that has been forked to be a worker and has
    not become it yet does not."""
    log, found = str(state_dir / "logs" / f"{name}.log"), []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and str(Path(f"/proc/{process.pid}/fd/1").readlink()) == log:
                found.append(process.pid)
        except (OSError, psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def complete(stack: RunningStack) -> int:
    body = {"model": "tiny", "prompt": "ab", "max_tokens": 2}
    return httpx.post(f"{stack.url}/v1/completions", json=body, timeout=60).status_code


def test_two_controllers_never_run_two_of_one_worker(stack: RunningStack) -> None:
    """Issue 30: two controllers ended each other's workers every 15 s. One stands still, the other takes over, and
    when the first one wakes up it is nobody's controller any more."""
    other, state_dir = second_controller(stack), stack.state_dir
    try:
        first_pid = stack.stack.controller
        assert first_pid is not None
        for name in ("worker-0", "worker-1"):
            killed = stack.kill(name)
            wait_for(lambda name=name, killed=killed: pids_of(state_dir, name) not in ([], [killed]), timeout_s=60)
            assert len(pids_of(state_dir, name)) == 1
        assert other.poll() is None
        os.kill(first_pid.pid, signal.SIGSTOP)
        log = stack.state_dir / "logs" / "controller-2.log"
        wait_for(lambda: "this controller has epoch 2" in log.read_text(), timeout_s=60)
        killed = pids_of(state_dir, "worker-0")[0]
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: pids_of(state_dir, "worker-0") not in ([], [killed]), timeout_s=60)
        with suppress(ProcessLookupError):  # the supervisor has found out that it stands still, and replaced it
            os.kill(first_pid.pid, signal.SIGCONT)
        wait_for(lambda: not psutil.pid_exists(first_pid.pid) or first_pid != stack.stack.controller, timeout_s=60)
        for name in ("worker-0", "worker-1"):
            assert len(pids_of(state_dir, name)) == 1
        wait_for(lambda: complete(stack) == 200, timeout_s=60)
        stack.stop()
        assert other.wait(timeout=20) is not None
        assert [pids_of(state_dir, name) for name in ("worker-0", "worker-1")] == [[], []]
        stack.start()
        stack.wait_until_ready()
    finally:
        other.kill()
        other.wait()
