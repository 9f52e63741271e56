"""`headway plan compare`: real searches of a small model side by side, and no stack."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from headway.cli.training.comparison import Cell, Comparison
from tests.cli.conftest import Run
from tests.planner.training.test_slice_search import plan_of

FACTORY = """
import torch
from torch import nn


def small(batch):
    blocks = [nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)]
    model = nn.Sequential(*blocks, nn.Linear(64, 1), nn.Flatten(0))
    return Summed(model), (torch.zeros(batch, 64),)


class Summed(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x).square().mean()
"""


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)


def test_what_was_found_is_a_table_and_a_picture(headway: Run, tmp_path: Path) -> None:
    command = ("plan", "compare", "--model", "mine:small", "--batch", "32", "--micro-batches", "1")
    told = headway(*command, "--cluster", "1x2xV100-16", "--method", "alpa", "--json", "--figure", "plans.svg")
    assert told.returncode == 0, told.stderr
    [alpa] = json.loads(told.stdout)
    assert (alpa["cluster"], alpa["method"], alpa["of_best"]) == ("1x2xV100-16", "alpa", 1)
    assert alpa["throughput"] == pytest.approx(32 / alpa["iteration_s"])
    assert 0 < alpa["memory_share"] < 1
    assert "1 of 1: mine:small on 1x2xV100-16 by alpa" in told.stderr
    assert "<svg" in (tmp_path / "plans.svg").read_text()


def test_the_table_says_how_far_each_is_from_the_best_and_why_some_have_no_plan() -> None:
    plan = plan_of("alpa")
    slow = replace(plan, iteration_s=2 * plan.iteration_s, slices=(256, 256))
    cells = (
        Cell(model="m", cluster="c", method="alpa", plan=plan),
        Cell(model="m", cluster="c", method="terapipe", plan=slow),
        Cell(model="m", cluster="c", method="megatron", why_not="It lacks 1 GiB."),
        Cell(model="m", cluster="d", method="terapipe", plan=slow),
    )
    comparison = Comparison(cells)
    assert [row.get("of_best") for row in comparison.document()] == [1, 2, None, 1]
    console = Console(width=300, file=StringIO())
    console.print(comparison.view())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "2.00x" in text
    assert "- m on c, megatron: It lacks 1 GiB." in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--method", "magic"), "There is no method 'magic'"),
        (("--figure", "plans.txt"), "ends with none of"),
        (("--model", "zoo:nothing"), "has no model"),
    ],
)
def test_what_is_wrong_with_the_question_is_said(headway: Run, arguments: tuple[str, ...], said: str) -> None:
    model = () if "--model" in arguments else ("--model", "mine:small")
    told = headway("plan", "compare", *model, "--cluster", "1x2xV100-16", "--batch", "8", *arguments)
    assert told.returncode != 0
    assert said in " ".join(told.stderr.replace("│", " ").split())
