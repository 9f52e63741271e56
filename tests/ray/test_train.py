"""`headway train` on a Ray cluster of two machines, which are this one twice: what processes of this machine learn is
learnt there too, through the death of a rank and a wish to stop."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from ray.cluster_utils import Cluster

from headway.cli.training_run.runs import find_run
from headway.core.codec import to_document
from headway.core.errors import FailedPreconditionError
from headway.core.training_job import CheckpointSettings, OptimizerSettings
from headway.core.training_run import CHECKPOINTS_DIRECTORY, RUN_FILE
from headway.train.checkpoint import Checkpoints
from headway.train.gang import train
from headway.train.ray_ranks import threads_each
from headway.train.setup import read_setup
from tests.train.models import Gpt, gpt_stage
from tests.train.runs import captured, execution_of, stages_of, write_run

# A cluster starts in a minute on a machine that does much else, and each of its processes imports torch.

_STARTS_WITHIN_S = 240
_EVERY_5 = CheckpointSettings(every=5)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of two machines with a core each."""
    settings = {"worker_niceness": 0}  # not behind all else that a busy machine does
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": settings}
    found = Cluster(initialize_head=True, head_node_args=head)
    found.add_node(num_cpus=1)
    yield found.address
    found.shutdown()


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with a run on a cluster that is gone, of more steps than are waited for; beside it the same one
    for this machine."""
    base = tmp_path_factory.mktemp("state")
    step = captured(Gpt(dropout=0.1), (2,))
    stages = stages_of(step.graph, lambda module: gpt_stage(module, 2), [(0,), (1,)], [2, 2])
    execution = execution_of(step, stages, successors=[(1,), ()])
    given: dict[str, Any] = {"optimizer": OptimizerSettings(clip=0.5), "restarts": 0, "steps": 10**6}
    there = write_run(base / "training" / "train-1", step, execution, checkpoint=_EVERY_5, ray="127.0.0.1:1", **given)
    (there / "job.json").write_text(json.dumps(to_document(read_setup(there).job)))
    write_run(base / "here", step, execution, **given)
    return base


def _command(state: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "headway.cli", "train", *arguments, "--state-dir", str(state)]


def _ranks() -> list[psutil.Process]:
    """The actors of this process's clusters."""
    return [each for each in psutil.Process().children(recursive=True) if "ray::Member" in _title(each)]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + _STARTS_WITHIN_S
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.1)


def test_a_run_on_two_machines_learns_what_one_here_does_through_a_death_and_a_stop(cluster: str, state: Path) -> None:
    command = _command(state, "resume", "--json", "--ray", cluster)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as trained:
        assert trained.stdout is not None
        assert trained.stderr is not None
        for line in trained.stdout:
            if json.loads(line)["step"]["step"] == 7:
                first, second = _ranks()
                assert first.parent() != second.parent(), "one is on each machine"
                second.send_signal(signal.SIGKILL)
        error = trained.stderr.read()
    assert trained.returncode == 1
    assert f"died, process {second.pid} on " in error, error
    _until(lambda: not _ranks())

    assert "died" in find_run(None, state).error
    killed_at = find_run(None, state).last_step
    subprocess.run(_command(state, "resume", "--detach"), check=True, timeout=60)
    assert find_run(None, state).state == "running"
    _until(lambda: find_run(None, state).last_step > killed_at)
    subprocess.run(_command(state, "stop"), check=True, timeout=60)
    _until(lambda: find_run(None, state).state == "stopped")
    _until(lambda: not _ranks())

    checkpoint = Checkpoints(state / "training" / "train-1" / CHECKPOINTS_DIRECTORY, keep=1).latest()
    assert checkpoint is not None
    losses, weights = _learnt_here(state / "here", checkpoint.facts.step)
    assert [step.loss for step in find_run(None, state).steps] == pytest.approx(losses, rel=1e-10)
    torch.testing.assert_close(checkpoint.state(), weights, rtol=1e-10, atol=1e-12)


def _learnt_here(directory: Path, num_steps: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses of so many steps, and the weights behind them."""
    run = json.loads((directory / RUN_FILE).read_text())
    run["job"]["steps"] = num_steps
    (directory / RUN_FILE).write_text(json.dumps(run))
    script = Path(__file__).parents[1] / "train" / "train_all.py"
    subprocess.run([sys.executable, str(script), str(directory)], check=True, timeout=300)
    told = json.loads((directory / "told.json").read_text())
    assert told["error"] == ""
    checkpoint = Checkpoints(directory / CHECKPOINTS_DIRECTORY, keep=1).latest()
    assert checkpoint is not None
    return [step["loss"] for step in told["reports"]], checkpoint.state()


def test_a_machine_without_the_runs_directory_is_told_to_share_it(cluster: str, state: Path) -> None:
    setup = read_setup(state / "training" / "train-1")
    setup = replace(setup, job=replace(setup.job, ray=cluster), directory=state / "nowhere")
    with pytest.raises(FailedPreconditionError, match=r"does not find the run's directory .*nowhere on ") as fault:
        list(train(setup, started=lambda _: None, restarted=lambda _: None))
    assert "--state-dir" in fault.value.hint


@pytest.mark.parametrize(
    ("cores", "num_ranks", "each"), [([1, 1], 2, 1), ([16, 16], 4, 8), ([16, 16], 3, 8), ([16, 4], 2, 8), ([5], 2, 2)]
)
def test_ranks_have_as_many_cores_as_each_can_have(cores: list[int], num_ranks: int, each: int) -> None:
    assert threads_each(cores, num_ranks) == each


def test_more_ranks_than_cores_are_refused() -> None:
    with pytest.raises(FailedPreconditionError, match="has 2 cores, and the job 3 workers"):
        threads_each([1, 1], 3)
