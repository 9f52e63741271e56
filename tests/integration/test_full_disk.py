"""The disk of a stack's state is full while requests come: none fails, no process is ended, and the stack tells it.

`make full-disk SECONDS=60` leaves it full for as long.
"""

import os
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack, wait_for

SECONDS = float(os.environ.get("HEADWAY_FULL_DISK_S", "2"))
BODY = {"model": "tiny", "prompt": "a b c", "max_tokens": 5}
_FILL_EVERY_S = 0.2


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 9 MB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("no small disk can be mounted: there is no mount command")
    command = ["mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", str(directory)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)


@pytest.fixture
def stack(disk: Path, tmp_path: Path) -> Iterator[RunningStack]:
    models = {"tiny": write_model(tmp_path / "model")}
    running = RunningStack(disk / "state", models, "--emulate", "2xV100", "--no-profile").start()
    yield running
    running.stop()


class Filler:
    """Takes all that is free of a disk, and what becomes free, until it lets go of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._fill)
        self._thread.start()

    def let_go(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._path.unlink()

    def _fill(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            while not self._is_over.wait(_FILL_EVERY_S):
                for size in (64 * 1024, 1):
                    self._write(file.fileno(), bytes(size))

    def _write(self, file: int, block: bytes) -> None:
        try:
            while not self._is_over.is_set():
                os.write(file, block)
        except OSError:  # it is full
            return


class Client(threading.Thread):
    """Asks again and again, and counts what it is answered, until it is told that it is over."""

    def __init__(self, url: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__()
        self._headers = headers
        self.answers: Counter[int] = Counter()
        self.is_over = threading.Event()
        self._url = f"{url}/v1/completions"

    def run(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self.is_over.is_set():
                self.answers[client.post(self._url, json=BODY, headers=self._headers).status_code] += 1


def runs(stack: RunningStack) -> dict[str, tuple[int, int]]:
    """The pid of each process, and how often it was started again."""
    processes = stack.status()["controller"]["processes"]
    return {each["name"]: (each["pid"], int(each.get("num_restarts", 0))) for each in processes}


def test_nothing_fails_or_ends_while_the_disk_is_full_and_it_is_told(stack: RunningStack, disk: Path) -> None:
    ready = f"{stack.url}/ready"
    before, client = runs(stack), Client(stack.url)
    client.start()
    try:
        wait_for(lambda: client.answers[200] > 3)
        filler = Filler(disk / "filler")
        try:
            wait_for(lambda: "faults" in httpx.get(ready).json())
            assert httpx.get(ready).status_code == 200, "it serves"
            until_s, num_before = time.monotonic() + SECONDS, client.answers[200]
            wait_for(
                lambda: client.answers[200] > num_before + 3 and time.monotonic() > until_s, timeout_s=60 + SECONDS
            )
            shown = stack.headway("status")
            assert shown.returncode == 0, shown.stderr
            assert httpx.get(ready).json()["faults"][0] in shown.stdout
        finally:
            filler.let_go()
        wait_for(lambda: "faults" not in httpx.get(ready).json())
    finally:
        client.is_over.set()
        client.join()
    assert set(client.answers) == {200}
    assert runs(stack) == before
    assert stack.headway("key", "create").returncode == 0, "Redis takes writes again"
