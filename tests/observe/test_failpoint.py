"""A process ends at the place that a test names, once, and passes all others."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from headway.observe.failpoint import VARIABLE

PASS = """
from headway.observe.failpoint import failpoint
for name in ("first", "second"):
    failpoint(name)
    print(name, flush=True)
"""


def run(**environment: str) -> tuple[int, list[str]]:
    """The exit status, and the places that were passed."""
    variables = {name: value for name, value in os.environ.items() if name != VARIABLE} | environment
    done = subprocess.run([sys.executable, "-c", PASS], env=variables, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.split()


def test_a_place_whose_file_is_there_ends_the_first_that_comes_to_it(tmp_path: Path) -> None:
    (tmp_path / "second").touch()
    assert run(**{VARIABLE: str(tmp_path)}) == (-signal.SIGKILL, ["first"])
    assert [path.name for path in tmp_path.iterdir()] == ["second.reached"]
    assert run(**{VARIABLE: str(tmp_path)}) == (0, ["first", "second"])


def test_without_the_variable_a_place_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "second").touch()
    assert run() == (0, ["first", "second"])
