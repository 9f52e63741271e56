"""Runs the parsers of torchtitan and Megatron-LM, which the Makefile puts under build/exports, in a process of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
_INSTALLED = ROOT / "build" / "exports"

needs_parsers = pytest.mark.skipif(
    not (_INSTALLED / ".installed").exists(), reason="make build/exports/.installed was not run"
)


def read_with(script: str, *arguments: str) -> Any:
    """What a script of this folder prints, as JSON."""
    path = Path(__file__).parent / script
    done = subprocess.run(
        [sys.executable, str(path), *arguments],
        env=os.environ | {"PYTHONPATH": str(_INSTALLED), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])
