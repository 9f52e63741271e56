"""A whole stack for tests: `headway up --detach` on a private state directory and free ports."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil

from headway.cli.running import cluster_status
from headway.client.stack import Stack, read_stack
from headway.client.token import find_token
from headway.core.codec import to_document
from tests.command import run_headway
from tests.liveness import is_alive

_UP_TIMEOUT_S = 300


class RunningStack:
    """Started by `start`, ended by `stop`. All but its status goes through the command line, as by a user's hands."""

    def __init__(
        self, state_dir: Path, models: dict[str, Path], *options: str, up_timeout_s: float = _UP_TIMEOUT_S
    ) -> None:
        self.state_dir = state_dir
        self._up_timeout_s = up_timeout_s
        self._models = models
        self._options = options

    def start(self) -> "RunningStack":
        models = [part for name, path in self._models.items() for part in ("--model", f"{name}={path}")]
        result = self.headway("up", *models, "--port", "0", *self._options, "--detach", timeout_s=self._up_timeout_s)
        assert result.returncode == 0, f"headway up failed:\n{result.stdout}\n{result.stderr}\n{self.logs()}"
        return self

    def stop(self) -> None:
        forked = self._descendants()  # whose command lines do not name the state directory
        result = self.headway("down")
        assert result.returncode == 0, result.stderr
        assert self.processes() == [], "headway down left processes behind"
        wait_for(lambda: not any(map(is_alive, forked)))  # forkservers end with the controller

    def headway(self, *arguments: str, timeout_s: float = 150) -> subprocess.CompletedProcess[str]:
        """Runs the `headway` command on this stack."""
        environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
        return run_headway(*arguments, "--state-dir", str(self.state_dir), environment=environment, timeout_s=timeout_s)

    @property
    def stack(self) -> Stack:
        stack = read_stack(self.state_dir)
        assert stack is not None, "the stack is not up"
        return stack

    @property
    def url(self) -> str:
        return self.stack.http_url

    def status(self) -> dict[str, Any]:
        """What `headway status --json` prints, without the second that a command takes to start."""
        with ThreadPoolExecutor(1) as pool:  # some callers have an event loop of their own
            status = pool.submit(cluster_status, None, api_key=None, state_dir=self.state_dir).result()
        document: dict[str, Any] = json.loads(json.dumps(to_document(status)))
        return document

    def processes(self) -> list[psutil.Process]:
        """Live processes whose command line names the state directory or whose environment does."""
        found = []
        for process in psutil.process_iter():
            try:
                arguments = " ".join(process.cmdline())
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
            if str(self.state_dir) in arguments and process.pid != os.getpid():
                found.append(process)
        return found

    def pid(self, name: str) -> int:
        """Process id of a service or worker, by its name in `headway status`."""
        for process in self.status()["controller"]["processes"]:
            if process["name"] == name:
                return int(process["pid"])
        raise AssertionError(f"no process is called {name}")

    def endpoint(self, name: str) -> str:
        """host:port of a process's gRPC server."""
        if name == "controller":
            return self.stack.controller_endpoint
        processes = self.status()["controller"]["processes"]
        return str(next(process["endpoint"] for process in processes if process["name"] == name))

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What internal calls carry: the stack's token."""
        return (("authorization", f"Bearer {find_token(self.state_dir)}"),)

    def metric(self, name: str, *, of: str = "") -> float:
        """Summed over all processes, or that of one."""
        total = 0.0
        for process in self.status()["controller"]["processes"]:
            if of in ("", process["name"]):
                text = httpx.get(f"http://{process['metrics_endpoint']}/metrics").text
                total += sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (.*)$", text, re.MULTILINE))
        return total

    def settled_blocks(self) -> float:
        """The blocks in the prefix index, once it has heard of those of all that was asked before."""
        seen = [-1.0]

        def is_settled() -> bool:
            seen.append(self.metric("headway:prefix_index_blocks"))
            return seen[-1] == seen[-2]

        wait_for(is_settled, every_s=2.0)
        return seen[-1]

    def kill(self, name: str) -> int:
        """`kill -9`; returns the pid that is gone."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_until_ready(self, *, timeout_s: float = 60) -> None:
        wait_for(lambda: httpx.get(f"{self.url}/ready", timeout=5).status_code == 200, timeout_s=timeout_s)

    def _descendants(self) -> list[psutil.Process]:
        stack = read_stack(self.state_dir)
        if stack is None:
            return []
        try:
            return psutil.Process(stack.supervisor.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def logs(self, *, num_chars: int = 2000) -> str:
        """The end of every log, for messages of failed tests."""
        paths = sorted(self.state_dir.rglob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text()[-num_chars:]}" for path in paths)


def wait_for(condition: Callable[[], bool], *, timeout_s: float = 60, every_s: float = 0.0) -> None:
    """Returns when `condition` holds; connection faults count as not yet.

    Args:
        every_s: seconds between two looks; 0 for more and more of them. To look takes time from what is waited for.
    """
    start_s = time.monotonic()
    while (waited_s := time.monotonic() - start_s) < timeout_s:
        try:
            if condition():
                return
        except httpx.TransportError:
            pass
        time.sleep(every_s or min(max(0.02, waited_s / 5), 0.25))
    raise AssertionError(f"nothing after {timeout_s} s: {condition}")
