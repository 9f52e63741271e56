"""`headway plan backends` with a planner, a profiler and a worker of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_NET = """
import torch

def net(batch):
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3)]
    return torch.nn.Sequential(*layers), (torch.empty(batch, 3, 16, 16),)
"""


@pytest.mark.timeout(900)
def test_it_measures_once_and_every_operator_has_a_backend(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(_NET)
    command = [sys.executable, "-m", "headway.cli", "plan", "backends", "mine:net", "--json", "--threads", "1"]
    command += ["--state-dir", str(tmp_path / "state"), "--backends", "eager"]
    first, again = (_run(command, tmp_path) for _ in range(2))
    operators = [name for group in first["groups"] for name in group["operators"]]
    assert sorted(operators) == ["convolution", "convolution_1", "native_batch_norm", "relu"]
    assert first["single"].keys() == {"eager"}
    assert first["deviation"] <= 1e-4
    assert first["num_measured"] > 0
    assert again["num_measured"] == 0
    assert again["groups"] == first["groups"]
    assert again["chosen_s"] == first["chosen_s"]


def _run(command: list[str], directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        subprocess.run(command, capture_output=True, timeout=400, check=True, cwd=directory).stdout
    )
    return found
