"""The processes that pods of a Kubernetes Job run, begun again as the Job does it: the run learns what it does on one
machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from headway.core.training_job import CheckpointSettings, OptimizerSettings
from headway.core.training_run import CHECKPOINTS_DIRECTORY, PROGRESS_FILE, RUN_FILE
from headway.train.checkpoint import Checkpoints
from tests.train.models import Gpt, gpt_stage
from tests.train.runs import captured, execution_of, stages_of, write_run

_STARTS_WITHIN_S = 120


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _pods(directory: Path) -> list["subprocess.Popen[str]"]:
    """Both, the second one first: it waits for the other."""
    port = _free_port()
    second = _pod(directory, 1, port)
    return [_pod(directory, 0, port), second]


def _pod(directory: Path, rank: int, port: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "headway.train.pod", str(directory), "localhost", str(port), "1"]
    environment = {**os.environ, "JOB_COMPLETION_INDEX": str(rank)}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def _statuses(pods: list["subprocess.Popen[str]"]) -> tuple[list[int], str]:
    """With which they end, and what the first one says."""
    said = [pod.communicate(timeout=_STARTS_WITHIN_S)[1] for pod in pods]
    return [pod.returncode for pod in pods], said[0]


def _told(directory: Path) -> list[dict[str, Any]]:
    progress = directory / PROGRESS_FILE
    return [json.loads(line) for line in progress.read_text().splitlines()] if progress.is_file() else []


def _wait_for_steps(directory: Path, num_lines: int) -> None:
    until_s = time.monotonic() + _STARTS_WITHIN_S
    while sum("step" in document for document in _told(directory)) < num_lines:
        assert time.monotonic() < until_s
        time.sleep(0.05)


def _set_steps(directory: Path, steps: int) -> None:
    run = json.loads((directory / RUN_FILE).read_text())
    run["job"]["steps"] = steps
    (directory / RUN_FILE).write_text(json.dumps(run))


def test_pods_go_on_behind_a_death_and_a_drain_until_the_run_is_done(tmp_path: Path) -> None:
    step = captured(Gpt(dropout=0.1), (2,))
    stages = stages_of(step.graph, lambda module: gpt_stage(module, 2), [(0,), (1,)], [2, 2])
    execution = execution_of(step, stages, successors=[(1,), ()])
    given: dict[str, Any] = {"optimizer": OptimizerSettings(clip=0.5), "steps": 10**6}
    there = write_run(tmp_path / "there", step, execution, checkpoint=CheckpointSettings(every=5), **given)
    here = write_run(tmp_path / "here", step, execution, **given)

    pods = _pods(there)
    _wait_for_steps(there, 7)
    pods[1].kill()
    statuses, said = _statuses(pods)
    assert statuses == [1, -signal.SIGKILL], said
    assert "rank 1 did not answer" in said or "the other ranks did not answer" in said
    assert "did not answer" in _told(there)[-1]["error"]["message"]

    pods, num_lines = _pods(there), len(_told(there))
    _wait_for_steps(there, num_lines + 1)
    pods[1].terminate()  # one is enough
    statuses, said = _statuses(pods)
    assert statuses == [3, 3], said
    stopped_at = _told(there)[-1]["step"]["step"]

    for directory in (there, here):
        _set_steps(directory, stopped_at + 3)
    statuses, said = _statuses(_pods(there))
    assert statuses == [0, 0], said
    assert _told(there)[-1]["step"]["step"] == stopped_at + 3
    subprocess.run([sys.executable, str(Path(__file__).parent / "train_all.py"), str(here)], check=True, timeout=300)
    found, wanted = (Checkpoints(each / CHECKPOINTS_DIRECTORY, keep=1).latest() for each in (there, here))
    assert found is not None
    assert wanted is not None
    torch.testing.assert_close(found.state(), wanted.state(), rtol=1e-10, atol=1e-12)


def test_an_error_that_would_come_again_has_a_status_of_its_own(tmp_path: Path) -> None:
    statuses, said = _statuses([_pod(tmp_path, 0, _free_port())])
    assert statuses == [2]
    assert f"There is no training run in {tmp_path}" in said
