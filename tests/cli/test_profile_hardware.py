"""`headway profile hardware` and times of models on it, without a stack."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headway.cli import hardware_measure
from headway.cli.hardware_measure import WorkersWanted
from headway.core.errors import NotFoundError, UnavailableError
from headway.core.hardware.calibration import HardwareProgress, HardwareWanted
from tests.cli.conftest import Run

ONLY = ("--only", "dispatch", "--only", "stream_copy", "--ranks", "1")


def test_it_is_measured_kept_drawn_and_not_measured_again(headway: Run, tmp_path: Path) -> None:
    picture = tmp_path / "curves.png"
    first = headway("profile", "hardware", *ONLY, "--json", "--plot", str(picture))
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    assert {timing["cell"]["family"] for timing in document["timings"]} == {"dispatch", "stream_copy"}
    assert {"torch", "headway", "kernel"} <= set(document["machine"]["hardware"]["software"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    again = json.loads(headway("profile", "hardware", *ONLY, "--json").stdout)
    assert again["timings"] == document["timings"]
    faulty = headway("profile", "model", "zoo:gpt3-1b-small", "--capture-only", "--hardware", "here")
    assert faulty.returncode == 1
    assert "not complete" in faulty.stderr


def test_faults_end_with_a_hint(headway: Run) -> None:
    for arguments, words in (
        (("hardware", "--only", "matmull"), "matmull"),
        (("hardware", "--device", "tpu"), "tpu"),
        (("model", "zoo:gpt3-1b-small", "--capture-only", "--hardware", "z9000"), "z9000"),
        (("model", "zoo:gpt3-1b-small", "--capture-only", "--hardware", "here"), "Nothing was measured here"),
    ):
        result = headway("profile", *arguments)
        assert result.returncode == 1, arguments
        assert words in result.stderr
        assert "hint:" in result.stderr
        assert "Traceback" not in result.stderr


async def test_a_worker_that_was_there_is_waited_for_and_one_that_never_was_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The profiler may be back before the worker that was killed with it."""
    asked: list[HardwareWanted] = []

    async def ask(link: object, wanted: HardwareWanted, workers: WorkersWanted) -> AsyncGenerator[HardwareProgress]:
        asked.append(wanted)
        if len(asked) == 1:
            yield HardwareProgress(num_done=1, num_total=2)
            raise UnavailableError("The profiler went away.")
        if len(asked) == 2 or workers.worker_id == "worker-9":
            raise NotFoundError("No worker is running.")
        yield HardwareProgress(num_done=2, num_total=2)

    @asynccontextmanager
    async def link(state_dir: Path | None) -> AsyncGenerator[None]:
        yield None

    monkeypatch.setattr(hardware_measure, "_ask", ask)
    monkeypatch.setattr(hardware_measure, "profiler_link", link)
    wanted = HardwareWanted(families=(), max_ranks=1, fresh=True)
    steps = hardware_measure._on_workers(wanted, WorkersWanted(worker_id="worker-1"), tmp_path)
    seen = [(step.num_done, step.waits_for) async for step in steps]
    assert seen == [(1, ""), (0, "The profiler went away."), (0, "No worker is running."), (2, "")]
    assert [each.fresh for each in asked] == [True, False, False]
    with pytest.raises(NotFoundError):
        await anext(hardware_measure._on_workers(wanted, WorkersWanted(worker_id="worker-9"), tmp_path))
