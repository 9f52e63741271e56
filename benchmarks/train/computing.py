"""Plans that are trained as `headway train` trains them: gangs of processes, each on its share of the cores."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from safetensors.torch import save_file

from benchmarks.train.gpt import Captured
from headway.core.codec import to_document
from headway.core.execution.execution import Execution
from headway.core.training_job import DataSettings, OptimizerSettings, TrainingJob
from headway.core.training_run import INITIAL_FILE, RUN_FILE, TrainingRun
from headway.train.gang import train
from headway.train.setup import read_setup


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Attributes:
    seconds, predicted_s: of an iteration, the median and what was predicted before the first.
    least_s: of the quickest iteration.
    losses: of all steps.
    """

    seconds: float
    least_s: float
    predicted_s: float
    losses: tuple[float, ...]
    bubble: float


def train_execution(step: Captured, execution: Execution, *, steps: int) -> Trained:
    """Trains a plan on random data; the first iteration does not count."""
    with TemporaryDirectory() as text:
        setup = read_setup(write_run(Path(text), step, execution, steps=steps))
        reports = list(train(setup, started=lambda _: None, restarted=lambda _: None))
    seconds = [report.seconds for report in reports[1:]]
    return Trained(
        seconds=median(seconds),
        least_s=min(seconds),
        predicted_s=reports[0].predicted_s,
        losses=tuple(report.loss for report in reports),
        bubble=median(report.bubble for report in reports[1:]),
    )


def write_run(directory: Path, step: Captured, execution: Execution, *, steps: int, **changes: object) -> Path:
    """Writes a run on random data from the model's weights, and gives its directory.

    Args:
        changes: of the job.
    """
    state = {name: parameter.detach().clone() for name, parameter in step.model.named_parameters()}
    save_file(state, directory / INITIAL_FILE)
    job = TrainingJob(
        model="gpt",
        data=DataSettings(synthetic=True),
        batch=execution.batch,
        steps=steps,
        workers=len(execution.ranks),
        optimizer=OptimizerSettings(name="sgd", rate=0.01),
        restarts=0,
        trace_every=0,
    )
    programs = {str(count): program for count, program in step.programs.items()}
    run = TrainingRun(job=replace(job, **changes), execution=execution, programs=programs)  # type: ignore[arg-type]
    (directory / RUN_FILE).write_text(json.dumps(to_document(run)))
    return directory


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Runs this process and those that it starts on so many cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's, of values that are all different."""
    count = len(first)
    distance = sum((a - b) ** 2 for a, b in zip(_places(first), _places(second), strict=True))
    return 1 - 6 * distance / (count * (count * count - 1))


def _places(values: Sequence[float]) -> list[int]:
    ordered = sorted(values)
    return [ordered.index(value) for value in values]
