"""Lines that are logged are written by another thread."""

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from headway.observe.log_thread import LogThread

_PROGRAM = """
import logging, os
from headway.observe.logging import configure_logging
configure_logging("program")
for number in range(1000):
    logging.info("%d", number)
"""


class Disk(io.StringIO):
    """Takes as long for a write as a test wants.

    Attributes:
        is_asked: once the first write has begun.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()
        self._is_free = threading.Event()

    def write(self, text: str) -> int:
        self.is_asked.set()
        assert self._is_free.wait(60)
        return super().write(text)

    def free(self) -> None:
        self._is_free.set()


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    made.free()


def log(handler: LogThread, *lines: str, level: int = logging.INFO) -> None:
    for line in lines:
        handler.handle(logging.makeLogRecord({"msg": line, "levelno": level}))


def test_who_logs_does_not_wait_for_the_disk_and_lines_keep_their_order(disk: Disk) -> None:
    handler = LogThread(disk)
    log(handler, *map(str, range(100)))
    assert disk.getvalue() == ""
    disk.free()
    handler.flush()
    assert disk.getvalue().split() == [str(number) for number in range(100)]
    handler.close()
    log(handler, "late")
    assert disk.getvalue().split()[-1] == "late"


def test_lines_that_the_disk_does_not_take_are_counted_and_told(disk: Disk) -> None:
    handler = LogThread(disk, max_waiting=3)
    log(handler, "first")
    assert disk.is_asked.wait(60)
    log(handler, *map(str, range(5)))
    disk.free()
    handler.flush()
    told = "2 lines are left out here: those before took too long to be written"
    assert disk.getvalue().splitlines() == ["first", "0", "1", "2", told]


def test_a_critical_line_is_written_before_whoever_logs_it_goes_on(disk: Disk) -> None:
    handler = LogThread(disk)
    log(handler, "before")
    disk.free()
    log(handler, "the end", level=logging.CRITICAL)
    assert disk.getvalue().split("\n") == ["before", "the end", ""]


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise RuntimeError"])
def test_all_lines_are_written_at_the_end(end: str) -> None:
    assert numbers_of(end) == list(range(1000))


def test_a_forked_process_writes_by_itself() -> None:
    """One that ends without the interpreter's end."""
    assert numbers_of("if os.fork() == 0: logging.info('1000'); os._exit(0)\nos.wait()") == list(range(1001))


def numbers_of(end: str) -> list[int]:
    """What a program has logged that ends so."""
    ended = subprocess.run([sys.executable, "-c", _PROGRAM + end], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")]
    return sorted(int(line["message"]) for line in lines)


def test_a_full_disk_ends_nothing() -> None:
    class Full(io.StringIO):
        is_full = True

        def write(self, text: str) -> int:
            if self.is_full:
                raise OSError(28, "No space left on device")
            return super().write(text)

    disk = Full()
    handler = LogThread(disk)
    log(handler, "lost")
    handler.flush()
    disk.is_full = False
    log(handler, "kept")
    handler.flush()
    assert disk.getvalue() == "kept\n"
