"""A stack for a demonstration: every command is shown, and no process is left behind."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.client.stack import STACK_FILE, Stack, find_stack


@contextmanager
def running_stack(state_dir: Path, *options: str) -> Iterator[Stack]:
    """Runs `headway up` with these options on free ports; CalledProcessError where it fails, which has said why."""
    try:
        headway("up", *options, "--port", "0", "--detach", state_dir=state_dir)
        yield find_stack(state_dir)
    finally:
        if (state_dir / STACK_FILE).exists():
            headway("down", state_dir=state_dir)


def headway(*arguments: str, state_dir: Path) -> None:
    print(f"\n$ headway {' '.join(arguments)}", flush=True)
    run_python("-m", "headway.cli", *arguments, "--state-dir", str(state_dir))


def run_python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True)
