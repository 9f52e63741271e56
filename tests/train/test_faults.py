"""Runs that are disturbed learn what undisturbed ones do, or say what is wrong; checkpoints are whole or not there."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.training_job import CheckpointSettings, OptimizerSettings
from headway.core.training_run import CHECKPOINTS_DIRECTORY
from headway.train.checkpoint import CheckpointFacts, Checkpoints
from tests.train.models import Gpt, gpt_stage
from tests.train.runs import captured, execution_of, stages_of, write_run

_ADAMW = OptimizerSettings(rate=3e-3, clip=0.5, schedule="cosine", warm_up=3)
_EVERY_5 = CheckpointSettings(every=5, keep=2)
RUNS: dict[str, dict[str, Any]] = {
    "undisturbed": {"restarts": 0},
    "killed": {"restarts": 1},
    "given-up": {"restarts": 0},
    "asked": {"restarts": 0},
    "stopped": {"restarts": 0, "timeout_s": 3.0},
    "diverging": {"restarts": 1, "optimizer": OptimizerSettings(name="sgd", rate=1e200)},
}


pytestmark = pytest.mark.timeout(600)  # a machine that does much else takes long to start ranks


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All runs, trained; dropout makes what they learn depend on the seeds of each step."""
    base = tmp_path_factory.mktemp("runs")
    step = captured(Gpt(dropout=0.1), (2,))
    stages = stages_of(step.graph, lambda module: gpt_stage(module, 2), [(0,), (1,)], [2, 2])
    execution = execution_of(step, stages, successors=[(1,), ()])
    for name, changes in RUNS.items():
        given = {"optimizer": _ADAMW, "checkpoint": _EVERY_5, **changes}
        write_run(base / name, step, execution, **given)
    script = Path(__file__).parent / "fault_runs.py"
    subprocess.run([sys.executable, str(script), *(str(base / name) for name in RUNS)], check=True, timeout=500)
    return {name: base / name for name in RUNS}


def _told(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "told.json").read_text())
    assert found["left"] == [], "no rank outlives its run"
    return found


def _weights(directory: Path) -> dict[str, torch.Tensor]:
    checkpoint = Checkpoints(directory / CHECKPOINTS_DIRECTORY, keep=1).latest()
    assert checkpoint is not None
    assert checkpoint.facts.step == 20
    return {**checkpoint.state(), **checkpoint.optimizer()}


@pytest.mark.parametrize(("name", "resumed_at"), [("killed", 6), ("given-up", 6), ("asked", None)])
def test_a_run_that_was_disturbed_has_the_same_bits(name: str, resumed_at: int | None, runs: dict[str, Path]) -> None:
    told, whole = _told(runs[name]), _told(runs["undisturbed"])
    assert told["error"] == ""
    assert len(told["restarts"]) == (name == "killed")
    numbers = [step["step"] for step in told["steps"]]
    begins = next(after for before, after in zip(numbers, [*numbers[1:], 21], strict=True) if before >= 7)
    assert numbers[-1] == 20
    assert begins == (resumed_at or begins)
    losses = {step["step"]: step["loss"] for step in whole["steps"]}
    assert [step["loss"] for step in told["steps"]] == [losses[number] for number in numbers]
    found, wanted = _weights(runs[name]), _weights(runs["undisturbed"])
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


def test_a_rank_that_died_is_named(runs: dict[str, Path]) -> None:
    assert "Rank 1 was killed by SIGKILL" in _told(runs["killed"])["restarts"][0]


def test_a_rank_that_hangs_ends_the_run_with_what_was_waited_for(runs: dict[str, Path]) -> None:
    error = _told(runs["stopped"])["error"]
    assert "did not answer while this one waited for" in error
    assert "value" in error or "all ranks" in error or "gradients" in error


def test_a_loss_that_is_no_number_is_named_with_its_step(runs: dict[str, Path]) -> None:
    told = _told(runs["diverging"])
    assert f"Step {len(told['steps']) + 1}: the loss is" in told["error"]
    assert "optimizer.rate" in told["error"]
    assert told["restarts"] == []


_FACTS = CheckpointFacts(step=5, seed=0, batch=8, model="test")


def _written(directory: Path, step: int) -> Checkpoints:
    checkpoints = Checkpoints(directory, keep=2)
    for rank in range(2):
        checkpoints.write(step, rank, {f"w{rank}": torch.full((3,), float(step))}, {})
    return checkpoints


def test_a_checkpoint_that_was_not_committed_is_not_there(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path, keep=2).latest() is None
    _written(tmp_path, 5).commit(_FACTS)
    _written(tmp_path, 10)
    latest = Checkpoints(tmp_path, keep=2).latest()
    assert latest is not None
    assert (latest.facts.step, float(latest.state()["w1"][0])) == (5, 5.0)


def test_the_last_ones_are_kept_and_partial_ones_are_not(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        checkpoints = _written(tmp_path, step)
        _written(tmp_path, step + 1)
        checkpoints.commit(replace(_FACTS, step=step))
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-00000010", "step-00000015"]
    index = json.loads((tmp_path / "step-00000015" / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == {"w0": "model-00000.safetensors", "w1": "model-00001.safetensors"}


def test_a_disk_that_takes_nothing_is_named_with_the_step(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").touch()
    with pytest.raises(FailedPreconditionError, match="checkpoint of step 5 could not be written"):
        _written(tmp_path / "checkpoints", 5)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    path = _written(tmp_path, 5).commit(_FACTS) / "model-00001.safetensors"
    path.write_bytes(path.read_bytes()[:20])
    latest = Checkpoints(tmp_path, keep=2).latest()
    assert latest is not None
    with pytest.raises(InvalidArgumentError, match=r"model-00001.safetensors cannot be read"):
        latest.state()
