"""`headway train`: a model of the user's own, planned and trained by real processes."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_train import FACTORY

JOB = """
model: mine:small
data: {synthetic: true}
batch: 16
steps: 4
micro_batches: 4
checkpoint: {every: 2}
optimizer: {name: sgd, rate: 0.01}
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own code and job, in the directory that commands run in."""
    (tmp_path / "mine.py").write_text(FACTORY)
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_job_is_planned_trained_and_kept(headway: Run, directory: Path) -> None:
    trained = headway("train", "job.yaml", "--json")
    assert trained.returncode == 0, trained.stderr
    steps = [json.loads(line)["step"] for line in trained.stdout.splitlines()]
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    assert [step["is_saved"] for step in steps] == [False, True, False, True]
    assert all(step["predicted_s"] > 0 for step in steps)
    known = json.loads(headway("train", "status", "--json").stdout)
    assert (known["state"], known["step"], known["losses"]) == ("done", 4, [step["loss"] for step in steps])
    assert (Path(known["directory"]) / "checkpoints" / "LATEST").read_text() == "step-00000004"
    again = headway("train", "resume")
    assert (again.returncode, f"{known['run_id']} is done" in again.stderr) == (1, True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("colour: red", "unknown field 'colour'"),
        ("schedule: zigzag", "schedule is 'zigzag'"),
        ("optimizer: {name: lion}", "optimizer.name is 'lion'"),
        ("optimizer: {rate: -1}", "optimizer.rate is -1"),
        ("data: {}", "one of tensors, tokens and synthetic"),
        ("steps: 0", "steps is 0"),
        ("plan: nowhere.yaml", "nowhere.yaml"),
    ],
)
def test_a_wrong_job_is_refused_by_its_field(change: str, said: str, headway: Run, directory: Path) -> None:
    field = change.partition(":")[0]
    lines = [line for line in JOB.splitlines() if not line.startswith(f"{field}:")]
    (directory / "job.yaml").write_text("\n".join([*lines, change]))
    refused = headway("train", "job.yaml", "--dry-run")
    assert refused.returncode != 0
    assert said in refused.stderr, refused.stderr


def test_there_are_no_runs_at_first(headway: Run, directory: Path) -> None:
    assert json.loads(headway("train", "list", "--json").stdout) == []
    assert "There are 0 training runs" in headway("train", "status").stderr
