"""A disk of which one can see at any moment what a loss of power would leave: what was synced, and nothing else."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("synced.c")


class SyncedDisk:
    """A directory whose files are those of processes that were started within `loaded`.

    Args:
        scratch: for what a loss of power would leave, and the library that sees to it.

    Attributes:
        directory: the files as they are while the power is on.
    """

    def __init__(self, directory: Path, scratch: Path) -> None:
        self.directory = directory
        self._kept = scratch / "kept"
        self._kept.mkdir(parents=True)
        self._library = scratch / "synced.so"
        compiler = shutil.which("cc") or shutil.which("gcc")
        assert compiler is not None, "a C compiler is needed, as for the kernels"
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", self._library, _SOURCE, "-ldl", "-lpthread"]
        subprocess.run(command, check=True)

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Processes that are started in here, and all that they start, write on this disk."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LD_PRELOAD", str(self._library))
            patch.setenv("SYNCED_OF", str(self.directory))
            patch.setenv("SYNCED_TO", str(self._kept))
            yield

    def lose_power(self, into: Path) -> Path:
        """Copies what a loss of power would leave just now."""
        lock = os.open(self._kept, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            shutil.copytree(self._kept / "tree", into)
        finally:
            os.close(lock)
        return into
