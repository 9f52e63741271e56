"""A forkserver, as its controller knows it."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping

from headway.controller.launchers.forkserver.order import Order
from headway.core.errors import UnavailableError

_SECRETS = ("HEADWAY_AUTH_TOKEN",)  # a child could read them in /proc/self/environ, whatever it is given instead
_MODULE = "headway.controller.launchers.forkserver"


class Forkserver:
    """Forks processes that have a runtime in common; it ends with us, they do not.

    Args:
        runtime: variables that libraries read when they are loaded, besides the environment that we have.
    """

    def __init__(self, runtime: Mapping[str, str]) -> None:
        self._orders, orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._deaths, deaths = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ordering = threading.Lock()
        self._statuses: dict[int, int] = {}
        with orders, deaths:
            numbers = orders.fileno(), deaths.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                env={name: value for name, value in os.environ.items() if name not in _SECRETS} | dict(runtime),
                pass_fds=numbers,
                start_new_session=True,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, order: Order) -> int:
        """The pid of the new process; blocks while what it needs is imported.

        Raises:
            UnavailableError: the forkserver has ended.
        """
        with self._ordering:
            try:
                self._orders.send(order.to_bytes())
                reply = self._orders.recv(32)
            except OSError:
                reply = b""
        if not reply:
            self._process.wait()
            raise UnavailableError(
                f"The process that others are forked from ended with {self._process.returncode} "
                f"instead of forking {' '.join(order.command[1:3])}.",
                hint="What it wrote is in the controller's log.",
            )
        return int(reply)

    def exit_status(self, pid: int) -> int | None:
        """Returns the exit status of a child that has ended; None for one that lives, as far as is known."""
        while True:
            try:
                message = self._deaths.recv(64, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            if not message:
                break
            ended, status = map(int, message.split())
            self._statuses[ended] = status
        return self._statuses.get(pid)
