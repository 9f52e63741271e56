"""`headway profile model` on a real stack whose processes are killed meanwhile, and without one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.command import run_headway
from tests.integration.stack import RunningStack, wait_for

_MODEL = ("widening:net", "--train", "--json")
_WIDENING = """
import torch

def net(batch):
    layers = [torch.nn.Linear(64 + 8 * i, 72 + 8 * i) for i in range(4)]
    return torch.nn.Sequential(*layers), (torch.empty(batch, 64),)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with a model of some dozen different programs."""
    (tmp_path / "widening.py").write_text(_WIDENING)
    return tmp_path


def _num_measured(stack: RunningStack) -> int:
    with Redis.from_url(stack.stack.redis_url) as redis:
        return sum(1 for _ in redis.scan_iter(match="headway:measurement:*"))


def test_a_killed_worker_and_a_killed_profiler_cost_only_what_was_running(stack: RunningStack, here: Path) -> None:
    command = [sys.executable, "-m", "headway.cli", "profile", "model", *_MODEL, "--state-dir", str(stack.state_dir)]
    with subprocess.Popen(
        [*command, "--share", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=here
    ) as measuring:
        wait_for(lambda: _num_measured(stack) >= 3, timeout_s=120, every_s=0.05)
        stack.kill("worker-0")
        before = _num_measured(stack)
        wait_for(lambda: _num_measured(stack) >= before + 3, timeout_s=120, every_s=0.05)
        stack.kill("profiler")
        output, complaints = measuring.communicate(timeout=150)
        assert measuring.returncode == 0, complaints.decode()
    first: dict[str, Any] = json.loads(output)
    assert first["num_cached"] == 0
    assert all(operator["cost"]["provenance"] == "measured" for operator in first["operators"])
    again = json.loads(subprocess.run(command, capture_output=True, timeout=120, check=True, cwd=here).stdout)
    assert (again["num_measured"], again["num_cached"]) == (0, first["num_measured"])
    assert again["operators"] == first["operators"]


def test_without_a_stack_it_measures_on_a_worker_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n\ndef net(batch):\n    return torch.nn.Linear(64, 64), (torch.empty(batch, 64),)\n\n"
        "class Picky(torch.nn.Module):\n    def forward(self, x):\n        return x if x.sum().item() else -x\n"
    )

    monkeypatch.chdir(tmp_path)

    def headway(*arguments: str) -> "subprocess.CompletedProcess[str]":
        state = ("--state-dir", str(tmp_path / "state"))
        return run_headway("profile", *arguments, *state, environment=os.environ, timeout_s=120)

    first = headway("model", "mine:net", "--batch", "8", "--json")
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    (product,) = document["operators"]
    assert (product["target"], product["count"], product["flops"]) == ("aten.addmm.default", 1, 2 * 8 * 64 * 64)
    assert document["forward_s"] == product["cost"]["seconds"] > 0
    again = headway("model", "mine:net", "--batch", "8")
    assert "0 measured, " in again.stdout
    assert not (tmp_path / "state" / "profile.json").exists()
    for arguments, words in (
        (("model", "mine:Picky"), "Picky (mine.py:8) does not export"),
        (("model", "mine:net", "--batch", "0"), "batch must be 1 or more"),
        (("model", "missing.pt"), "no file or directory"),
        (("model", "mine:net", "--share", "2"), "share must be"),
        (("model", "mine:net", "--detach"), "No stack is running"),
    ):
        result = headway(*arguments)
        assert result.returncode == 1, result.stdout
        assert words in result.stderr
        assert "Traceback" not in result.stderr


def test_ctrl_c_ends_the_job_and_leaves_no_process(here: Path) -> None:
    state = here / "state"
    command = [sys.executable, "-m", "headway.cli", "profile", "model", *_MODEL, "--state-dir", str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=here) as measuring:
        wait_for((state / "profile.json").exists, timeout_s=120)
        record = json.loads((state / "profile.json").read_text())
        os.kill(measuring.pid, signal.SIGINT)
        measuring.communicate(timeout=60)
        assert measuring.returncode != 0
    for process in record["processes"]:
        wait_for(lambda pid=process["pid"]: not Path(f"/proc/{pid}").exists())
