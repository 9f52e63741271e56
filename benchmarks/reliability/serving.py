"""A stack of emulated devices under test: its processes, and whether all is well with it."""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.admission.__main__ import EMULATED_DIRECTORY, SMALL_DIRECTORY, make_emulated_model, make_small_model
from deploy.demo.stack import running_stack
from headway.cli.running import cluster_status
from headway.client.stack import ProcessId, find_stack
from headway.core.errors import HeadwayError

MODEL_NAME = "shared"
_WELL_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A stack that runs, in processes of its own."""

    url: str
    state_dir: Path

    async def pids(self) -> dict[str, int]:
        """Of every process but the supervisor, by name."""
        status = await asyncio.to_thread(cluster_status, None, api_key=None, state_dir=self.state_dir)
        stack = find_stack(self.state_dir)
        found = {each.name: each.pid for each in status.controller.processes}
        first = {"controller": stack.controller, "redis": stack.redis}
        return found | {name: each.pid for name, each in first.items() if isinstance(each, ProcessId)}

    async def signal(self, name: str, number: signal.Signals) -> int:
        """Returns the pid of the process that got it."""
        pid = (await self.pids())[name]
        os.kill(pid, number)
        return pid

    async def wait_until_well(self, *, without: int = 0) -> float:
        """Until everything is ready and nothing is the process with that pid; returns the seconds that it took.

        Raises:
            TimeoutError: it is not within two minutes.
        """
        began_s = time.monotonic()
        async with asyncio.timeout(_WELL_TIMEOUT_S):
            while not await self._is_well(without):  # noqa: ASYNC110 - it is another process that changes
                await asyncio.sleep(0.2)
        return time.monotonic() - began_s

    async def _is_well(self, without: int) -> bool:
        try:
            status = await asyncio.to_thread(cluster_status, None, api_key=None, state_dir=self.state_dir)
            pids = await self.pids()
        except HeadwayError:
            return False
        states = {each.state for each in status.controller.processes}
        return status.controller.ready and states == {"ready"} and without not in pids.values() and _live(pids)


def _live(pids: dict[str, int]) -> bool:
    try:
        return all(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids.values())
    except psutil.NoSuchProcess:
        return False


@contextmanager
def serving(*options: str) -> Iterator[Serving]:
    """A stack with a model of 1.1 billion parameters on emulated devices; these are further options of `headway up`."""
    model = make_emulated_model(EMULATED_DIRECTORY, tokenizer=make_small_model(SMALL_DIRECTORY))
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        state_dir = Path(scratch) / "state"
        with running_stack(state_dir, "--model", f"{MODEL_NAME}={model}", "--no-profile", *options) as stack:
            yield Serving(url=stack.http_url, state_dir=state_dir)
