"""The disk of a stack's state takes long for each write and each sync: requests do not wait for it, nobody is ended,
and what is asked of the controller meanwhile is acknowledged late.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack, wait_for
from tests.integration.test_full_disk import Client, runs
from tests.integration.test_lost_data import make_key

pytestmark = pytest.mark.timeout(180)

_SOURCE = Path(__file__).with_name("slow_disk.c")
WRITE_MS, SYNC_MS = 300, 1000
NUM_ANSWERS = 20


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


@pytest.fixture
def disk(tmp_path: Path) -> SlowDisk:
    return SlowDisk(tmp_path / "state", tmp_path)


@pytest.fixture
def stack(disk: SlowDisk, tmp_path: Path) -> Iterator[RunningStack]:
    models = {"tiny": write_model(tmp_path / "model")}
    running = RunningStack(disk.directory, models, "--emulate", "2xV100", "--no-profile")
    with pytest.MonkeyPatch.context() as patch:
        disk.loaded(patch)
        running.start()
    yield running
    disk.be_slow(write_ms=0, sync_ms=0)
    running.stop()


def test_nothing_fails_or_ends_while_the_disk_is_slow_and_orders_are_acknowledged_late(
    stack: RunningStack, disk: SlowDisk
) -> None:
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
        models, headers = f"{stack.url}/v1/models", {"authorization": f"Bearer {another}"}
        wait_for(lambda: httpx.get(models, headers=headers).status_code == 200)
    finally:
        client.is_over.set()
        client.join()
    assert set(client.answers) == {200}
    assert runs(stack) == before
