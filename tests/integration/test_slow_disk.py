"""The disk of a stack's state takes long for each write and each sync: requests do not wait for it, nobody is ended,
and what is asked of the controller meanwhile is acknowledged late. Where logs cannot be written at all, nobody waits.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack, wait_for
from tests.integration.test_full_disk import Client, runs
from tests.integration.test_lost_data import make_key

_SOURCE = Path(__file__).with_name("slow_disk.c")
WRITE_MS, SYNC_MS = 300, 1000
STANDSTILL_MS = 3600 * 1000
NUM_ANSWERS = 20
LONG = {"model": "tiny", "prompt": "a b c", "max_tokens": 400, "stream": True}


class SlowDisk:
    """Where processes that are started within `loaded` keep their files."""

    def __init__(self, directory: Path, scratch: Path) -> None:
        self.directory = directory
        self._control = scratch / "slow-by"
        self._library = scratch / "slow_disk.so"
        compiler = shutil.which("cc") or shutil.which("gcc")
        assert compiler is not None, "a C compiler is needed, as for the kernels"
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", self._library, _SOURCE, "-ldl"]
        subprocess.run(command, check=True)

    def loaded(self, patch: pytest.MonkeyPatch) -> None:
        """Processes that are started from now on, and all that they start, write on this disk."""
        patch.setenv("LD_PRELOAD", str(self._library))
        patch.setenv("SLOW_OF", str(self.directory))
        patch.setenv("SLOW_BY", str(self._control))

    def be_slow(self, *, write_ms: int, sync_ms: int) -> None:
        """What each write and each sync takes longer from now on."""
        staging = self._control.with_suffix(".new")
        staging.write_text(f"{write_ms} {sync_ms}")
        staging.replace(self._control)


@contextmanager
def running(directory: Path, disk: SlowDisk) -> Iterator[RunningStack]:
    models = {"tiny": write_model(directory / "model")}
    stack = RunningStack(directory / "state", models, "--emulate", "2xV100", "--no-profile")
    with pytest.MonkeyPatch.context() as patch:
        disk.loaded(patch)
        stack.start()
    yield stack
    disk.be_slow(write_ms=0, sync_ms=0)
    stack.stop()


def test_nothing_fails_or_ends_while_the_disk_is_slow_and_orders_are_acknowledged_late(tmp_path: Path) -> None:
    disk = SlowDisk(tmp_path / "state", tmp_path)
    with running(tmp_path, disk) as stack:
        key = make_key(stack)
        before, client = runs(stack), Client(stack.url, headers={"authorization": f"Bearer {key}"})
        client.start()
        try:
            wait_for(lambda: client.answers[200] > 3)
            disk.be_slow(write_ms=WRITE_MS, sync_ms=SYNC_MS)
            num_before = client.answers[200]
            another = make_key(stack)
            wait_for(lambda: client.answers[200] >= num_before + NUM_ANSWERS)
            assert httpx.get(f"{stack.url}/ready", timeout=60).status_code == 200
            wait_for(lambda: may_ask(stack.url, headers={"authorization": f"Bearer {another}"}))
        finally:
            client.is_over.set()
            client.join()
        assert set(client.answers) == {200}
        assert runs(stack) == before


def test_logs_that_cannot_be_written_hold_nobody_up(tmp_path: Path) -> None:
    """Each process of the stack has had something to log meanwhile."""
    disk = SlowDisk(tmp_path / "state" / "logs", tmp_path)
    with running(tmp_path, disk) as stack:
        before = runs(stack)
        num_lines = {path: path.read_text().count("\n") for path in (stack.state_dir / "logs").iterdir()}
        disk.be_slow(write_ms=STANDSTILL_MS, sync_ms=0)
        make_key(stack)
        key = {"authorization": f"Bearer {make_key(stack)}"}
        wait_for(lambda: may_ask(stack.url, headers=key))
        leave(stack.url, headers=key)
        stack.kill("worker-1")
        client = Client(stack.url, headers=key)
        client.start()
        try:
            wait_for(lambda: client.answers[200] >= NUM_ANSWERS)
            wait_for(lambda: runs(stack)["worker-1"] != before["worker-1"])
            stack.wait_until_ready()
        finally:
            client.is_over.set()
            client.join()
        assert set(client.answers) == {200}
        disk.be_slow(write_ms=0, sync_ms=0)
        for name in ("gateway", "router", "controller", "kvcache"):
            (log,) = [path for path in num_lines if path.stem.startswith(name)]
            wait_for(lambda log=log: log.read_text().count("\n") > num_lines[log])


def may_ask(url: str, *, headers: dict[str, str]) -> bool:
    """Whether the gateway knows the key already."""
    return httpx.get(f"{url}/v1/models", headers=headers).status_code == 200


def leave(url: str, *, headers: dict[str, str]) -> None:
    """A client that goes while it is answered."""
    with httpx.stream("POST", f"{url}/v1/completions", json=LONG, headers=headers, timeout=60) as response:
        next(response.iter_lines())
