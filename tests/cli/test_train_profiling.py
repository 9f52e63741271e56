"""What the search of a job's plan goes by: measured times, or the catalogue's figures, and which is said."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from headway.cli.process import identify
from headway.cli.training_run.profiling import ProfilingOptions, figures_of
from headway.core.capture import CaptureRequest
from headway.core.codec import to_document
from headway.core.errors import AlreadyExistsError
from headway.core.precision import Precision
from headway.core.training_job import DataSettings, TrainingJob
from headway.profiler.capture.capture import capture
from tests.cli.test_train import FACTORY

JOB = TrainingJob(model="mine:small", data=DataSettings(synthetic=True), batch=16, steps=4)


def test_where_operators_cannot_be_measured_the_catalogue_counts_and_why_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command measures with the same state directory: here this process, which lives."""
    (tmp_path / "mine.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    request = CaptureRequest(source=JOB.model, batch=2, train=True, with_program=True)
    captured = capture(request, report=lambda _: None)
    assert captured.graph is not None
    assert captured.program is not None
    step = captured.graph, captured.program
    state_dir = tmp_path / "state"
    state_dir.mkdir(mode=0o700)
    other = {"owner": to_document(identify(os.getpid())), "processes": []}
    (state_dir / "profile.json").write_text(json.dumps(other))
    options = ProfilingOptions(precision=Precision.FLOAT32, num_threads=1, deadline_s=60, state_dir=state_dir)

    figures, said = asyncio.run(figures_of(JOB, *step, options))
    assert figures is None
    assert said.startswith(
        "the catalogue's figures, as operators could not be measured: Another `headway profile` runs"
    )
    with pytest.raises(AlreadyExistsError, match="Another `headway profile` runs"):
        asyncio.run(figures_of(replace(JOB, profile="always"), *step, options))
    figures, said = asyncio.run(figures_of(replace(JOB, profile="never"), *step, options))
    assert (figures, said) == (None, "the catalogue's figures, as the job says profile: never")
