"""The `headway` command in processes that are forked from one which has imported it.

A command is its user's process all the same: with arguments, environment, directory and streams of its own, and an exit
status. Only its imports, which take most commands longer than what they do, are made once for all tests.
"""

import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile

from headway.cli.__main__ import main
from headway.cli.app import COMMANDS

_ROOT = Path(__file__).parents[1]
_MAX_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class _Order:
    """A command to run; its standard streams and the socket that hears of it come with the message."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    directory: str


def run_headway(
    *arguments: str, environment: Mapping[str, str], stdin: str = "", timeout_s: float = 150
) -> "subprocess.CompletedProcess[str]":
    """Runs the command in the current directory.

    Raises:
        TimeoutExpired: it was not done in time, and was killed.
    """
    order = _Order(arguments=arguments, environment=dict(environment), directory=str(Path.cwd()))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, TemporaryFile("w+") as given, TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        given.write(stdin)
        given.seek(0)
        with theirs:
            streams = (given.fileno(), output.fileno(), errors.fileno(), theirs.fileno())
            socket.send_fds(_server(), [json.dumps(asdict(order)).encode()], streams)
        pid = int(ours.recv(32))
        ours.settimeout(timeout_s)
        try:
            status = int(ours.recv(32))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["headway", *arguments], timeout_s) from None
        for stream in (output, errors):
            stream.seek(0)
        return subprocess.CompletedProcess(["headway", *arguments], status, output.read(), errors.read())


@cache
def _server() -> socket.socket:
    """The socket that takes orders; the process behind it ends with ours."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.command", str(theirs.fileno())]
        subprocess.Popen(command, pass_fds=(theirs.fileno(),), cwd=_ROOT, start_new_session=True)
    return ours


def _serve(orders: socket.socket) -> _Order | None:
    """Returns in each child with its order, and at last in the server with None."""
    with selectors.DefaultSelector() as running:
        running.register(orders, selectors.EVENT_READ)
        while True:
            for key, _ in running.select():
                if key.fileobj is not orders:
                    running.unregister(key.fileobj)
                    _tell(key.fd, *key.data)
                    continue
                message, streams, _, _ = socket.recv_fds(orders, _MAX_BYTES, 4)
                if not message:
                    return None
                *standard, listener = streams
                if (pid := os.fork()) == 0:
                    for descriptor, stream in enumerate(standard):
                        os.dup2(stream, descriptor)
                    for descriptor in (*streams, orders.detach()):
                        os.close(descriptor)
                    fields = json.loads(message)
                    return _Order(**fields)
                for descriptor in standard:
                    os.close(descriptor)
                heard = socket.socket(fileno=listener)
                heard.send(str(pid).encode())
                running.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, heard))


def _tell(descriptor: int, pid: int, listener: socket.socket) -> None:
    """Of a command that has ended."""
    os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    with listener, suppress(BrokenPipeError):  # whoever waited has killed it
        listener.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(order: _Order) -> None:
    os.environ.clear()
    os.environ.update(order.environment)
    os.chdir(order.directory)
    sys.path[0] = order.directory  # as for `python -m`
    sys.argv = ["headway", *order.arguments]
    main()


if __name__ == "__main__":
    for name in COMMANDS:
        import_module(f"headway.cli.{name}")
    gc.freeze()  # so that no collection of a child writes to the pages that it shares with us
    ordered = _serve(socket.socket(fileno=int(sys.argv[1])))
    if ordered is not None:
        _become(ordered)
