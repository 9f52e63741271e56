"""Backends of a GPU: each beside torch, and the choice of `headway plan backends --device cuda`."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headway.backends.contest import Contest
from headway.core.backend_package import installed_backends
from tests.backends.test_contest import placed
from tests.command import run_headway

if not torch.cuda.is_available():
    pytest.skip("not run: there is no GPU here", allow_module_level=True)


def test_finalists_run_on_the_gpu_and_what_cannot_is_named() -> None:
    known = {str(backend): backend for backend in installed_backends()}
    gone = replace(known["eager"], name="gone", version="1.0")
    contest = Contest(torch.device("cuda"), memory_bytes=1 << 30, num_threads=1)
    wanted = [placed(each) for each in (known["eager"], known["inductor"], known["headway"], gone)]
    eager, inductor, own, missing = contest.times(wanted, first=0)
    for timing in (eager, inductor):
        assert timing.fault == ""
        assert 0 < timing.least_s <= timing.seconds
        assert timing.deviation <= 1e-5
    assert "on the CPU" in own.fault
    assert "'gone' is not installed" in missing.fault


def test_a_model_is_planned_on_the_gpu(tmp_path: Path) -> None:
    options = ["--device", "cuda", "--generations", "0", "--seq", "16", "--json"]
    command = ["plan", "backends", "zoo:bert-base-small", *options, "--state-dir", str(tmp_path)]
    result = run_headway(*command, environment=dict(os.environ), timeout_s=170)
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert {"eager", "inductor"} <= plan["single"].keys()
    assert plan["chosen_s"] <= 1.2 * min(plan["single"].values())
    assert plan["deviation"] < 1e-4
