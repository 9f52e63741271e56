"""What a parallel run makes of a test that takes its process down."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUM_FILES = 8  # so many that the process which crashes is done with some of them
PASSES = "def test_passes():\n    pass\n"
CRASHES = "import os, signal\n\n\ndef test_crashes():\n    os.kill(os.getpid(), signal.SIGSEGV)\n"


def test_it_ends_red_and_names_the_test(tmp_path: Path) -> None:
    for number in range(NUM_FILES):
        (tmp_path / f"test_{number}.py").write_text(PASSES)
    (tmp_path / f"test_{NUM_FILES}.py").write_text(CRASHES)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"]
    command += ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-q", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1, result.stdout
    assert f"test_{NUM_FILES}.py::test_crashes" in result.stdout
