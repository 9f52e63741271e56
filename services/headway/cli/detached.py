"""Starting a stack that runs on in the background."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from headway.cli.startup import show_until_ready
from headway.cli.welcome import welcome
from headway.client.stack import Stack
from headway.core.codec import to_document
from headway.core.deployment import Deployment
from headway.core.errors import FailedPreconditionError
from headway.core.plan.serving import ServingPlan

_CHECK_EVERY_S = 0.1
_ABANDON_TIMEOUT_S = 20.0


class _Unheard(Console):
    """Prints nothing more once its reader has gone, where others end the command: the stack runs on all the same."""

    def on_broken_pipe(self) -> None:
        with suppress(SystemExit):
            super().on_broken_pipe()


def start_detached(state_dir: Path, deployment: Deployment) -> None:
    """Starts the stack and returns when it serves. Raises HeadwayError where start-up fails; nothing is left running
    then."""
    console, started_at_s = _Unheard(), time.monotonic()
    supervisor = _spawn_supervisor(state_dir, deployment)
    try:
        stack, plan = asyncio.run(_wait_for_detached(supervisor, state_dir, console))
        welcome(console, stack, plan, took_s=time.monotonic() - started_at_s, stop_with="`headway down`")
    except BaseException:
        _abandon(supervisor)
        raise


def _spawn_supervisor(state_dir: Path, deployment: Deployment) -> subprocess.Popen[bytes]:
    """Starts the supervisor. The deployment goes through a pipe, not a file, because it may hold API keys."""
    log_path = _log_path(state_dir)
    log_path.parent.mkdir(mode=0o700, exist_ok=True)
    with log_path.open("ab") as log_file:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "headway.cli.supervisor", str(state_dir)],
            stdin=subprocess.PIPE,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,
        )
    assert supervisor.stdin is not None
    with supervisor.stdin as pipe:
        pipe.write(json.dumps(to_document(deployment)).encode())
    return supervisor


async def _wait_for_detached(
    supervisor: subprocess.Popen[bytes], state_dir: Path, console: Console
) -> tuple[Stack, ServingPlan]:
    starting = asyncio.create_task(show_until_ready(state_dir, console))
    while supervisor.poll() is None:
        done, _ = await asyncio.wait((starting,), timeout=_CHECK_EVERY_S)
        if done:
            return starting.result()
    starting.cancel()
    raise FailedPreconditionError("The stack ended while it started.", hint=_last_words(state_dir))


def _abandon(supervisor: subprocess.Popen[bytes]) -> None:
    for _ in range(2):  # the second time without waiting for running requests
        supervisor.send_signal(signal.SIGTERM)
        time.sleep(0.1)
    try:
        supervisor.wait(timeout=_ABANDON_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        supervisor.kill()


def _last_words(state_dir: Path) -> str:
    lines = _log_path(state_dir).read_text(errors="replace").splitlines() or [""]
    try:
        return str(json.loads(lines[-1])["message"])
    except (ValueError, KeyError):
        return lines[-1]


def _log_path(state_dir: Path) -> Path:
    return state_dir / "logs" / "supervisor.log"
