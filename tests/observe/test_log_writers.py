"""Processes are found by the log that they write to."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headway.observe.log_writers import LogWriter, find_log_writers
from headway.observe.process_start import process_start

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as ends:

        def run(log: Path, *, leads: bool = True) -> subprocess.Popen[bytes]:
            with log.open("ab") as output:
                command = (sys.executable, "-S", "-c", "import time; time.sleep(600)")
                process = subprocess.Popen(command, stdout=output, start_new_session=leads)
            ends.callback(process.wait)
            ends.callback(process.kill)
            return process

        yield run


def test_the_leaders_of_sessions_that_write_to_logs_of_the_directory_are_found(tmp_path: Path, start: Start) -> None:
    (tmp_path / "elsewhere").mkdir()
    worker, moved, ended = (start(tmp_path / f"{name}.log") for name in ("worker-0", "router", "planner"))
    start(tmp_path / "elsewhere" / "gateway.log")
    start(tmp_path / "kvcache.log", leads=False)
    (tmp_path / "router.log").rename(tmp_path / "router.log.1")
    ended.kill()  # and not waited for
    (tmp_path / "link").symlink_to(tmp_path)

    def writer(name: str, process: subprocess.Popen[bytes]) -> LogWriter:
        return LogWriter(name, process.pid, process_start(process.pid) or "")

    expected = {writer("worker-0", worker), writer("router", moved)}
    while set(found := find_log_writers(tmp_path)) != expected:
        assert writer("planner", ended) in found, "it takes a moment to die"
    assert set(find_log_writers(tmp_path / "link")) == expected
