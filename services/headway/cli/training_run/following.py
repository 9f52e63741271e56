"""Runs a training run in this terminal, or leaves it to itself."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

from rich.console import Console

from headway.cli.process import identify
from headway.cli.search.interrupt import interruptible
from headway.core.codec import from_document, to_document
from headway.core.training_run import PROCESS_FILE, TrainingNews
from headway.rpc.child import call_child

_MODULE = "headway.train"
_LOG = "log"


async def follow_run(directory: Path) -> AsyncIterator[TrainingNews]:
    """Runs it, and yields what it tells. The first Ctrl-C ends it behind its step, with a checkpoint."""
    console = Console(stderr=True)
    with interruptible(console, "Ending behind this step with a checkpoint; Ctrl-C again kills the run.") as stop:
        async with aclosing(call_child(_MODULE, str(directory), deadline_s=None, stop=stop)) as answers:
            async for answer in answers:
                yield from_document(TrainingNews, answer)


def leave_run(directory: Path) -> None:
    """Starts it in a session of its own; what it says goes to its log. It is known to run from now on."""
    with (directory / _LOG).open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    path = directory / PROCESS_FILE
    path.with_suffix(".tmp").write_text(json.dumps(to_document(identify(process.pid))))
    path.with_suffix(".tmp").rename(path)
    assert process.stdin is not None
    process.stdin.write(json.dumps(str(directory)).encode() + b"\n")
    process.stdin.close()
