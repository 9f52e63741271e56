"""Runs that are disturbed learn what undisturbed ones do, or say what is wrong; checkpoints are whole or not there."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from headway.cli.training_run.trace import chrome_trace, draw_trace, read_trace, trace_lines
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.execution.execution import ActionKind
from headway.core.training_job import CheckpointSettings, DataSettings, OptimizerSettings, ValidationSettings
from headway.core.training_run import CHECKPOINTS_DIRECTORY
from headway.train.checkpoint import CheckpointFacts, Checkpoints
from headway.train.data import open_data
from headway.train.rank import unexpected
from headway.train.setup import read_setup
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
    "background": {"restarts": 1, "checkpoint": replace(_EVERY_5, background=True)},
    "validated": {"restarts": 0, "checkpoint": CheckpointSettings(every=0, keep=1, best=2)},
    "diverging": {"restarts": 1, "trace_every": 0, "optimizer": OptimizerSettings(name="sgd", rate=1e200)},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All runs, trained; dropout makes what they learn depend on the seeds of each step."""
    base = tmp_path_factory.mktemp("runs")
    step = captured(Gpt(dropout=0.1), (2,))
    stages = stages_of(step.graph, lambda module: gpt_stage(module, 2), [(0,), (1,)], [2, 2])
    execution = execution_of(step, stages, successors=[(1,), ()])
    for name, changes in RUNS.items():
        given = {"optimizer": _ADAMW, "checkpoint": _EVERY_5, **changes}
        if name == "validated":
            data = DataSettings(tensors=str(base / name / "data.safetensors"))
            given["validation"] = ValidationSettings(data=data, every=3, batches=2)
        write_run(base / name, step, execution, padded=name == "validated", **given)
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


@pytest.mark.parametrize(
    ("name", "resumed_at"), [("killed", 6), ("given-up", 6), ("asked", None), ("background", None)]
)
def test_a_run_that_was_disturbed_has_the_same_bits(name: str, resumed_at: int | None, runs: dict[str, Path]) -> None:
    told, whole = _told(runs[name]), _told(runs["undisturbed"])
    assert told["error"] == ""
    assert len(told["restarts"]) == (name in ("killed", "background"))
    numbers = [step["step"] for step in told["steps"]]
    begins = next(after for before, after in zip(numbers, [*numbers[1:], 21], strict=True) if before >= 7)
    assert numbers[-1] == 20
    assert begins == (resumed_at or begins)
    losses = {step["step"]: step["loss"] for step in whole["steps"]}
    assert [step["loss"] for step in told["steps"]] == [losses[number] for number in numbers]
    found, wanted = _weights(runs[name]), _weights(runs["undisturbed"])
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


def test_what_is_validated_is_kept_where_it_is_best(runs: dict[str, Path]) -> None:
    """Without dropout, over all targets of two batches; behind every third step and the last one."""
    directory = runs["validated"]
    told = _told(directory)
    assert told["error"] == ""
    losses = {step["step"]: step["validation_loss"] for step in told["steps"] if "validation_loss" in step}
    assert list(losses) == [3, 6, 9, 12, 15, 18, 20]
    best = sorted(losses, key=lambda step: losses[step])[:2]
    whole = [int(path.name[5:]) for path in (directory / CHECKPOINTS_DIRECTORY).glob("step-*")]
    assert sorted(whole) == sorted({*best, 20})
    (checkpoint, second) = Checkpoints(directory / CHECKPOINTS_DIRECTORY, keep=1, best=2).best()
    assert [checkpoint.facts.step, second.facts.step] == best
    model = Gpt(dropout=0.1).double().eval()
    model.load_state_dict(checkpoint.state())
    setup = read_setup(directory)
    examples = open_data(setup.job.data, setup.inputs(set(checkpoint.state())), batch=8, seed=setup.job.seed)
    pair = [examples.batch(number) for number in range(2)]
    both = {name: torch.cat([batch[name] for batch in pair]) for name in pair[0]}
    assert losses[best[0]] == pytest.approx(float(model(**both).detach()), rel=1e-10)


def test_an_iteration_is_kept_beside_its_prediction(runs: dict[str, Path]) -> None:
    trace = read_trace(runs["undisturbed"])
    assert trace.step == 2
    for iteration in (trace.predicted, trace.measured):
        runs_of = [trace.execution.ranks[span.rank].actions[span.at].kind for span in iteration.spans]
        for kind in (ActionKind.FORWARD, ActionKind.BACKWARD):
            assert runs_of.count(kind) == 8, "four micro-batches in two stages"
        assert all(0 <= span.start_s <= span.end_s <= iteration.seconds for span in iteration.spans)
    events = json.loads(chrome_trace(trace))["traceEvents"]
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    draw_trace(trace, runs["undisturbed"] / "trace.svg")
    assert "predicted" in (runs["undisturbed"] / "trace.svg").read_text()
    assert [line.split()[0] for line in trace_lines(trace)] == ["step", "rank", "rank"] * 2
    with pytest.raises(FailedPreconditionError, match="has no trace of a whole iteration"):
        read_trace(runs["diverging"])


def test_steps_say_how_busy_the_workers_are(runs: dict[str, Path]) -> None:
    for step in _told(runs["undisturbed"])["steps"]:
        assert 0 < step["bubble"] < 1
        assert 0 < step["predicted_bubble"] < 1


def test_a_rank_that_died_is_named(runs: dict[str, Path]) -> None:
    assert "Rank 1 was killed by SIGKILL" in _told(runs["killed"])["restarts"][0]


def test_a_rank_that_hangs_ends_the_run_with_what_was_waited_for(runs: dict[str, Path]) -> None:
    error = _told(runs["stopped"])["error"]
    assert re.match("Rank 0 in step [89]: (rank 1|the other ranks) did not answer while this one waited for", error)
    assert "value" in error or "all ranks" in error or "gradients" in error


def test_a_loss_that_is_no_number_is_named_with_its_step(runs: dict[str, Path]) -> None:
    told = _told(runs["diverging"])
    assert f"Step {len(told['steps']) + 1}: the loss is" in told["error"]
    assert "optimizer.rate" in told["error"]
    assert "gradients of stage 0, 1 are no finite numbers" in told["error"] or "squares" in told["error"]
    assert told["restarts"] == []


def test_an_operator_that_is_not_deterministic_is_named() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError) as raised:
            torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))
    finally:
        torch.use_deterministic_algorithms(False)
    fault = unexpected(1, raised.value)
    assert (fault.field, "put_" in fault.message) == ("deterministic", True), fault.message
    assert "This is a fault of Headway" in unexpected(0, KeyError("x")).hint


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


def test_whenever_a_process_dies_or_has_no_room_a_whole_checkpoint_loads(tmp_path: Path) -> None:
    script = Path(__file__).parent / "checkpoint_faults.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, timeout=300)
    told = json.loads((tmp_path / "told.json").read_text())
    operations = [operation for operation, _, _ in told["deaths"]]
    assert {"open", "os.mkdir", "os.rename", "shutil.rmtree"} <= set(operations)
    found = [before for _, before, _ in told["deaths"]]
    assert found == sorted(found), "the new one from some operation on, the old one before"
    assert (found[0], found[-1]) == ([5.0], [10.0])
    assert all(after == [15.0] for _, _, after in told["deaths"]), "the next one is written as ever"
    for error, loaded in told["full"]:
        assert "The checkpoint of step 10 could not be written" in error
        assert loaded == [5.0]


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
