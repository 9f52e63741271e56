"""Writes checkpoints in processes that die at one file operation after the other, or have no room; see test_faults.

Forks, so it runs in a process of its own, which has no threads.
"""

import json
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import torch

from headway.core.errors import FailedPreconditionError
from headway.train.checkpoint import CheckpointFacts, Checkpoints

_OPERATIONS = ("open", "os.mkdir", "os.rename", "os.rmdir", "os.remove", "shutil.rmtree")
_NUM_RANKS = 2


def save(directory: Path, step: int) -> None:
    checkpoints = Checkpoints(directory, keep=1)
    for rank in range(_NUM_RANKS):
        checkpoints.write(step, rank, {f"w{rank}": torch.full((500,), float(step))}, {})
    checkpoints.commit(CheckpointFacts(step=step, seed=0, batch=8, model="test"))


def die_at(directory: Path, number: int) -> str:
    """The operation at which the process ended that wrote a second checkpoint; empty where it came to its end."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        left = [number]

        def count(event: str, arguments: tuple[object, ...]) -> None:
            if event in _OPERATIONS and any(str(each).startswith(str(directory)) for each in arguments):
                left[0] -= 1
                if not left[0]:
                    os.write(writes, event.encode())
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        save(directory, 10)
        os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    with os.fdopen(reads) as told:
        return told.read()


def without_room(directory: Path, num_bytes: int) -> str:
    """What the error says where files cannot become larger."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))
        try:
            save(directory, 10)
        except FailedPreconditionError as error:
            os.write(writes, str(error).encode())
        os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    with os.fdopen(reads) as told:
        return told.read()


def loaded(directory: Path) -> list[float]:
    """The step of the latest checkpoint, and what its tensors have."""
    latest = Checkpoints(directory, keep=1).latest()
    assert latest is not None
    return sorted({float(latest.facts.step), *(float(x) for t in latest.state().values() for x in t)})


def main(base: Path) -> None:
    deaths, number, operation = [], 0, "none"
    while operation:
        number += 1
        directory = base / str(number)
        save(directory, 5)
        operation = die_at(directory, number)
        deaths.append([operation, loaded(directory)])
        save(directory, 15)
        deaths[-1].append(loaded(directory))
        shutil.rmtree(directory)
    full = []
    for num_bytes in (0, 100, 1500):
        save(base / "full", 5)
        full.append([without_room(base / "full", num_bytes), loaded(base / "full")])
    (base / "told.json").write_text(json.dumps({"deaths": deaths, "full": full}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
