"""Training runs under the state directory: each has a directory of its own."""

import fcntl
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.cli.process import is_alive
from headway.cli.training_run.pods import PodsState, is_in_pods, pods_state
from headway.client.stack import ProcessId, default_state_dir
from headway.core.codec import from_document, to_document
from headway.core.errors import FailedPreconditionError, NotFoundError
from headway.core.fault import Fault
from headway.core.training_job import TrainingJob
from headway.core.training_run import (
    CHECKPOINTS_DIRECTORY,
    LATEST_FILE,
    PROCESS_FILE,
    PROGRESS_FILE,
    RUN_FILE,
    StepReport,
    TrainingNews,
    TrainingRun,
)

_DIRECTORY, _JOB_FILE, _LOCK_FILE = "training", "job.json", "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What is known of a run.

    Attributes:
        steps: all that were told; a step that was done again, as last told.
        saved_step: that of the last checkpoint; 0 for none.
        error: with which it ended; empty where it did not fail.
        process: that runs it, or did.
        pods: how it is where it was given to a Kubernetes cluster, as long as it is not done.
    """

    run_id: str
    directory: Path
    job: TrainingJob
    steps: tuple[StepReport, ...]
    saved_step: int
    num_restarts: int
    error: str
    process: ProcessId | None
    pods: PodsState | None = None

    @property
    def state(self) -> str:
        if is_alive(self.process):
            return "running"
        if self.job.steps in (self.last_step, self.saved_step):  # killed, it may not have told of the last one
            return "done"
        if self.pods is not None:
            return self.pods.state
        return "failed" if self.error else "stopped"

    @property
    def last_step(self) -> int:
        return self.steps[-1].step if self.steps else 0


def new_run(run: TrainingRun, state_dir: Path | None) -> Path:
    """Makes a run's directory; what its name begins with sorts by time."""
    run_id = f"train-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
    directory = _base(state_dir) / run_id
    directory.mkdir(parents=True)
    (directory / RUN_FILE).write_text(json.dumps(to_document(run)))
    (directory / _JOB_FILE).write_text(json.dumps(to_document(run.job)))
    return directory


def move_run(run: RunState, *, ray: str) -> RunState:
    """The run as it goes on elsewhere.

    Args:
        ray: address of the Ray cluster; empty for this machine.
    """
    job, path = replace(run.job, ray=ray), run.directory / RUN_FILE
    document = json.loads(path.read_text())
    _write(path, {**document, "job": to_document(job)})
    _write(run.directory / _JOB_FILE, to_document(job))
    return replace(run, job=job)


def _write(path: Path, document: object) -> None:
    """Replaces a file as a whole."""
    path.with_suffix(".tmp").write_text(json.dumps(document))
    path.with_suffix(".tmp").rename(path)


def list_runs(state_dir: Path | None) -> list[RunState]:
    """All runs, the newest first."""
    base = _base(state_dir)
    found = sorted(base.glob("train-*"), reverse=True) if base.is_dir() else []
    return [_state(path) for path in found if (path / _JOB_FILE).is_file()]


def find_run(run_id: str | None, state_dir: Path | None) -> RunState:
    """The run whose id begins so, or the newest; NotFoundError where there is none, or more than one."""
    runs = [run for run in list_runs(state_dir) if run_id is None or run.run_id.startswith(run_id)]
    if not runs or (run_id is not None and len(runs) > 1):
        called = f" called {run_id}" if run_id else ""
        raise NotFoundError(
            f"There are {len(runs)} training runs{called}." if runs else f"There is no training run{called}.",
            hint="See `headway train list`.",
        )
    return runs[0]


@contextmanager
def starting(run_id: str, state_dir: Path | None) -> Iterator[RunState]:
    """Keeps others from starting the run within the block, and gives it as it is by then.

    FailedPreconditionError where somebody else is about to start it, where it runs, or where it is done.
    """
    _check_startable(find_run(run_id, state_dir))
    with (_base(state_dir) / run_id / _LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FailedPreconditionError(
                f"Somebody else is about to start {run_id}.", hint="`headway train status` shows it."
            ) from None
        found = find_run(run_id, state_dir)
        _check_startable(found)
        yield found


def _check_startable(run: RunState) -> None:
    """FailedPreconditionError where it runs, or is done."""
    if run.state in ("running", "done"):
        raise FailedPreconditionError(f"{run.run_id} is {run.state}.", hint="`headway train status` shows it.")


def _base(state_dir: Path | None) -> Path:
    return (state_dir or default_state_dir()).resolve() / _DIRECTORY


def _told(progress: Path) -> Iterator[dict[str, Any]]:
    """What its lines say; one that a full disk cut short says nothing."""
    for line in progress.read_text().splitlines() if progress.is_file() else ():
        with suppress(json.JSONDecodeError):
            yield json.loads(line)


def _saved_step(directory: Path) -> int:
    latest = directory / CHECKPOINTS_DIRECTORY / LATEST_FILE
    number = latest.read_text().strip().removeprefix("step-") if latest.is_file() else ""
    return int(number) if number.isdecimal() else 0


def _state(directory: Path) -> RunState:
    steps: dict[int, StepReport] = {}
    restarts, error = 0, ""
    for document in _told(directory / PROGRESS_FILE):
        if "error" in document:
            error = from_document(Fault, document["error"]).message
            continue
        news = from_document(TrainingNews, document)
        restarts += bool(news.restart)
        if news.step is not None:
            steps = {number: each for number, each in steps.items() if number < news.step.step}
            steps[news.step.step], error = news.step, ""
    process = directory / PROCESS_FILE
    job = from_document(TrainingJob, json.loads((directory / _JOB_FILE).read_text()))
    pods = pods_state(directory) if is_in_pods(directory) and job.steps not in steps else None
    return RunState(
        run_id=directory.name,
        directory=directory,
        job=job,
        steps=tuple(steps.values()),
        saved_step=_saved_step(directory),
        num_restarts=restarts,
        error=error or (pods.message if pods is not None else ""),
        pods=pods,
        process=from_document(ProcessId, json.loads(process.read_text())) if process.is_file() else None,
    )
