"""Processes that are forked, as a controller's are, from one that has imported what they need."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from headway.controller.launchers.forkserver.forkserver import Forkserver
from headway.controller.launchers.forkserver.order import Order

_ROOT = Path(__file__).parents[1]


class ForkedProcess:
    """`python -m MODULE`, with what tests ask of a `subprocess.Popen`.

    Args:
        imports: what it imports that takes long; free of threads, of sockets and of devices.
    """

    def __init__(self, module: str, arguments: Sequence[str], *, imports: str, log: Path) -> None:
        order = Order(
            preload=(imports,),
            command=(sys.executable, "-m", module, *arguments),
            environment=dict(os.environ),
            log_path=str(log),
        )
        self.pid = _server().fork(order)

    def poll(self) -> int | None:
        return self.wait(20) if self._has_ended(within_s=0) else None

    def wait(self, timeout_s: float) -> int:
        """The exit status.

        Raises:
            TimeoutExpired: it still lives.
        """
        until_s = time.monotonic() + timeout_s
        self._has_ended(within_s=timeout_s)
        while (status := _server().exit_status(self.pid)) is None:  # which the forkserver is about to tell
            if time.monotonic() > until_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout_s)
            time.sleep(0.001)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, *, within_s: float) -> bool:
        if _server().exit_status(self.pid) is not None:
            return True
        try:
            end = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([end], [], [], within_s)[0])
        finally:
            os.close(end)


@cache
def _server() -> Forkserver:
    """It ends with this process."""
    return Forkserver({"PYTHONPATH": str(_ROOT)})
