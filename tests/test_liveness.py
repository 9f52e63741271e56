"""What counts as a live process."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.liveness import is_alive

# Its main thread ends, and another one goes on.
_HEADLESS = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
print("on", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until_zombie(process: psutil.Process) -> None:
    while process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)


def test_one_that_runs_is_alive_and_one_that_waits_to_be_reaped_or_is_gone_is_not() -> None:
    with started("cat") as process:
        found = psutil.Process(process.pid)
        assert is_alive(process.pid)
        assert is_alive(found)
        process.kill()
        wait_until_zombie(found)
        assert not is_alive(process.pid)
        assert not is_alive(found)
    assert not is_alive(process.pid)
    assert not is_alive(found)


def test_one_whose_main_thread_alone_has_ended_is_alive() -> None:
    """The kernel calls it a zombie. One that is killed under load looks so for a fifth of a second."""
    with started(sys.executable, "-c", _HEADLESS) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        wait_until_zombie(psutil.Process(process.pid))
        assert is_alive(process.pid)
        process.kill()
        while is_alive(process.pid):
            time.sleep(0.01)


def test_one_that_goes_between_two_questions_raises_nothing() -> None:
    for _ in range(100):
        with started("true") as process:
            reaping = threading.Thread(target=process.wait)
            reaping.start()
            while is_alive(process.pid):
                pass
            reaping.join()
