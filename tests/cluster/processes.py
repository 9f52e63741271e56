"""Programs that run beside a test."""

import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx

_PATIENCE_S = 120


class Processes:
    """Each program has a log of its own. Use it as a context; leaving it ends them, the last started one first."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = dict(environment)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self._running)):
            self.kill(name)

    def spawn(self, name: str, *command: str) -> None:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._directory, env=self._environment
            )

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def run(self, *command: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        """Runs a program to its end, with something as its standard input."""
        return subprocess.run(
            command, input=given, env=self._environment, capture_output=True, text=True, check=False, timeout=600
        )

    def wait(self, is_so: Callable[[], bool], what: str, *, patience_s: float = _PATIENCE_S) -> None:
        """Until it is so, while all programs run; what a server does not answer meanwhile does not count."""
        deadline_s = time.monotonic() + patience_s
        while time.monotonic() < deadline_s:
            with suppress(httpx.HTTPError):
                if is_so():
                    return
            ended = [name for name, process in self._running.items() if process.poll() is not None]
            assert not ended, f"{ended} ended: {self._end_of_log(ended[0])}"
            time.sleep(0.2)
        raise AssertionError(f"{what}: not within {patience_s} s; logs are in {self._directory}")

    def _end_of_log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")[-2000:]
