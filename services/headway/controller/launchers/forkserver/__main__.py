"""`python -m headway.controller.launchers.forkserver ORDERS DEATHS`: forks what it is told to.

It ends with its controller. Orders come on one socket, and each is answered by a pid; the other tells of every child
that has ended, as `pid status`. A child leaves the loop and becomes the module that it was ordered to be.
"""

import gc
import importlib
import os
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from setproctitle import setproctitle

from headway.controller.launchers.forkserver.order import MAX_BYTES, Order


def serve(orders: socket.socket, deaths: socket.socket) -> Order | None:
    """Returns in each child with its order, and at last in the server with None."""
    gc.disable()  # imports make much, all of which stays
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    sources = orders.fileno(), woken
    while True:
        readable, _, _ = select.select(sources, [], [])
        if woken in readable:
            os.read(woken, 4096)
            _tell_of_deaths(deaths)
        if orders.fileno() not in readable:
            continue
        message = orders.recv(MAX_BYTES)
        if not message:
            return None
        order = Order.from_bytes(message)
        for name in order.preload:
            importlib.import_module(name)
        if _has_ended(orders):
            return None  # nobody would know of the child
        gc.collect()
        gc.freeze()  # so that no collection of a child writes to the pages that it shares with us
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (orders.detach(), deaths.detach(), woken, wakes):
                os.close(descriptor)
            gc.enable()
            return order
        orders.send(str(pid).encode())


def become(order: Order, *, usable: set[int]) -> None:
    """Runs the order's module as the process's own program."""
    os.setsid()
    with Path(order.log_path).open("ab") as log, Path(os.devnull).open("rb") as nothing:
        for descriptor, file in ((0, nothing), (1, log), (2, log)):
            os.dup2(file.fileno(), descriptor)
    os.sched_setaffinity(0, order.cores or usable)  # OpenMP has bound the thread that loaded it
    if order.niceness:
        os.nice(order.niceness)
    setproctitle(" ".join(order.command))  # which goes by the environment that the process was started with
    os.environ.clear()
    os.environ.update(order.environment)
    _, _, module, *arguments = order.command
    sys.argv = [module, *arguments]
    sys.modules.pop(f"{module}.__main__", None)  # if it was preloaded, for the sake of what it imports
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _has_ended(orders: socket.socket) -> bool:
    """Whether the controller has, while modules were imported."""
    with suppress(BlockingIOError):
        return not orders.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    return False


def _tell_of_deaths(deaths: socket.socket) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            with suppress(BrokenPipeError):
                deaths.send(f"{pid} {os.waitstatus_to_exitcode(status)}".encode())


if __name__ == "__main__":
    usable = os.sched_getaffinity(0)
    received = serve(*(socket.socket(fileno=int(number)) for number in sys.argv[1:3]))
    if received is not None:
        become(received, usable=usable)
