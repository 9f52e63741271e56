"""`headway plan train`: a model of the user's own, real capture, search and planner processes, and no stack."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

FACTORY = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, width, num_blocks):
        super().__init__()
        self.blocks, self.head = nn.Sequential(*[Block(width) for _ in range(num_blocks)]), nn.Linear(width, 10)

    def forward(self, x, targets):
        return nn.functional.cross_entropy(self.head(self.blocks(x)), targets)


def small(batch):
    return Model(64, 4), (torch.zeros(batch, 64), torch.zeros(batch, dtype=torch.long))


def frozen(batch):
    model, inputs = small(batch)
    return model.requires_grad_(False), inputs
"""
ARGUMENTS = ("--cluster", "1x4xV100-16", "--batch", "32", "--micro-batches", "1")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own code, in the directory that commands run in."""
    (tmp_path / "mine.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_model_of_the_users_own_becomes_a_plan_that_is_explained_drawn_exported_and_known(
    headway: Run, directory: Path
) -> None:
    command = ("plan", "train", "--model", "mine:small", *ARGUMENTS, "--explain")
    told = headway(*command, "--out", "plan.yaml", "--figure", "plan.svg", "--export", "dtensor", "--json")
    assert told.returncode == 0, told.stderr
    document = json.loads(told.stdout)
    assert document["violations"] == []
    assert document["throughput"] == pytest.approx(32 / document["iteration_s"])
    assert [device for stage in document["stages"] for device in stage["devices"]] == [0, 1, 2, 3]
    assert all(0 < stage["memory"]["total_bytes"] < 16 * 2**30 for stage in document["stages"])
    assert sum(len(stage["operators"]) for stage in document["stages"]) > 20
    assert "<svg" in (directory / "plan.svg").read_text()
    assert "blocks.0.up.weight" in (directory / "plan.dtensor.json").read_text()

    shown = headway("plan", "show", "plan.yaml")
    assert "1x4xV100-16" in shown.stdout, shown.stderr
    explained = json.loads(headway("plan", "explain", "plan.yaml", "--json").stdout)
    others = {each["name"]: each.get("iteration_s") for each in explained["alternatives"]}
    assert {"data-parallel", "megatron", "zero-3"} <= set(others)
    assert all(iteration_s is None or iteration_s >= document["iteration_s"] for iteration_s in others.values())
    assert explained["reasons"]
    again = headway(*command, "--json")
    assert json.loads(again.stdout)["plan_id"] == document["plan_id"]
    assert document["plan_id"] in headway("plan", "jobs", "show", "training-").stdout


def test_a_plan_of_the_users_own_is_priced(headway: Run, directory: Path) -> None:
    (directory / "mine.yaml").write_text("micro_batches: 2\nstages:\n- {layers: 0-1, mesh: 1x4, axes: [data, data]}\n")
    command = ("plan", "train", "--model", "mine:small", *ARGUMENTS[:4], "--layers", "2", "--fixed", "mine.yaml")
    told = headway(*command, "--json")
    assert told.returncode == 0, told.stderr
    document = json.loads(told.stdout)
    assert (document["method"], document["num_micro_batches"], len(document["stages"])) == ("fixed", 2, 1)
    (directory / "mine.yaml").write_text("micro_batches: 2\nstages:\n- {layers: 0-1, mesh: 4by1}\n")
    refused = headway(*command)
    assert refused.returncode == 1
    assert "mine.yaml, line 3" in refused.stderr


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({"--model": "mine:frozen"}, ("requires a gradient",), id="frozen"),
        pytest.param({"--model": "zoo:gtp-3"}, ("gtp-3", "gpt3"), id="no such model"),
        pytest.param({"--cluster": "1x4xV9000"}, ("V9000", "V100"), id="no such device"),
        pytest.param({"--solver": "simplex"}, ("simplex", "highs, cbc"), id="no such solver"),
        pytest.param({"--cluster": "four"}, ("four", "8x8xV100"), id="no cluster"),
        pytest.param({"--micro-batches": "5"}, ("32 does not divide into 5", "4 would"), id="micro-batches"),
        pytest.param({"--precision": "bfloat16"}, ("V100", "bfloat16", "--precision float16"), id="precision"),
        pytest.param({"--method": "magic"}, ("magic", "graphpipe"), id="method"),
        pytest.param({"--export": "word"}, ("word", "torchtitan"), id="format"),
        pytest.param({"--hardware": "none"}, ("'none'", "headway profile list"), id="hardware"),
        pytest.param({"--hardware": "here"}, ("measured here", "headway profile hardware"), id="not measured"),
        pytest.param({"--fixed": "none.yaml"}, ("none.yaml",), id="layout"),
        pytest.param({"--cluster": sys.executable}, (sys.executable, "no text in UTF-8"), id="binary"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_what_to_do(
    headway: Run, changes: dict[str, str], told: tuple[str, ...]
) -> None:
    options = {"--model": "mine:small", "--cluster": "1x4xV100-16", "--batch": "32", "--micro-batches": "1"} | changes
    refused = headway("plan", "train", *(part for option in options.items() for part in option))
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    message = " ".join(refused.stderr.split())
    for part in told:
        assert part in message


@pytest.mark.usefixtures("directory")
def test_ctrl_c_while_capturing_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    command = ("plan", "train", "--model", "zoo:alpa-gpt3-2.6b", "--cluster", "1x8xV100", "--batch", "32")
    process = subprocess.Popen(
        [sys.executable, "-m", "headway.cli", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment | {"XDG_STATE_HOME": str(tmp_path / "state")},
    )
    assert process.stderr is not None
    assert any(line.startswith("capturing") for line in process.stderr)
    process.send_signal(signal.SIGINT)
    told = process.stderr.read()
    assert process.wait() == 130
    assert "Traceback" not in told
    assert list((tmp_path / "state").rglob("*.graph")) == []
