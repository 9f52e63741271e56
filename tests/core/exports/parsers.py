"""Runs the parsers of torchtitan and Megatron-LM, which the Makefile puts under build/exports, in another process."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
_INSTALLED = ROOT / "build" / "exports"

needs_parsers = pytest.mark.skipif(
    not (_INSTALLED / ".installed").exists(), reason="make build/exports/.installed was not run"
)


def read_all(script: str, texts: Mapping[str, str], folder: Path, *arguments: str, num_devices: int) -> dict[str, Any]:
    """What a script of this folder makes of some files, by their names."""
    if not (_INSTALLED / ".installed").exists():
        return {}
    paths = []
    for name, text in texts.items():
        (folder / name).write_text(text)
        paths += [str(folder / name), str(num_devices)]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / script), *arguments, *paths],
        env=os.environ | {"PYTHONPATH": str(_INSTALLED), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(texts, json.loads(done.stdout.splitlines()[-1]), strict=True))
