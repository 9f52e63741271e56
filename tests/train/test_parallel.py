"""A user's own loop around a module that runs by a plan, in one process and under a launcher, learns what plain torch
does."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headway import parallelize
from headway.cli.plan_file import write_plan
from headway.cli.ports import take_port
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.plan.serving import ServingPlan
from headway.core.plan.training import SliceSeconds, TrainingPlan
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.trace import trace
from tests.planner.certify.planned import cluster_of, mesh_of, plan_of
from tests.train.models import Gpt, inputs
from tests.train.own_loop import BATCH, NUM_STEPS, RATE, model

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plan() -> TrainingPlan:
    """Two stages of one device, four micro-batches of two."""
    traced = trace(model(), tuple(inputs(Gpt(), 2).values()), train=True, report=lambda _: None)
    graph = build_graph(traced, name="Gpt", is_training=True, batch=2)
    return plan_of(graph, cluster_of(1, 2), meshes=[mesh_of(1, 1, 1)] * 2)


@pytest.mark.parametrize(("world", "slices"), [(1, (4, 2)), (2, ())], ids=["one process, slices", "two processes"])
def test_a_loop_of_ones_own_learns_what_plain_torch_does(
    world: int, slices: tuple[int, ...], plan: TrainingPlan, tmp_path: Path
) -> None:
    times = (SliceSeconds(forward_s=0.001, backward_s=0.002),) * len(slices)
    stages = tuple(replace(stage, slices=times) for stage in plan.stages)
    write_plan(replace(plan, slices=slices, stages=stages), tmp_path / "plan.json")
    port = take_port("127.0.0.1", 0, option="MASTER_PORT")
    processes = []
    for rank in range(world):
        launched = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {**os.environ, **({k: str(v) for k, v in launched.items()} if world > 1 else {})}
        command = [sys.executable, "-m", "tests.train.own_loop", str(tmp_path / "plan.json"), str(tmp_path)]
        processes.append(subprocess.Popen(command, env=environment, cwd=ROOT))
    assert [process.wait(250) for process in processes] == [0] * world
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(world)]

    alone = model()
    optimizer = torch.optim.SGD(alone.parameters(), lr=RATE)
    losses = []
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        loss = alone(*inputs(alone, BATCH, seed=step).values())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for each in told:
        assert each["losses"] == pytest.approx(losses, rel=1e-5)
    wanted = {name: parameter.flatten().tolist() for name, parameter in alone.named_parameters()}
    found = {name: weights for each in told for name, weights in each["weights"].items()}
    assert found.keys() == wanted.keys()
    for name, weights in found.items():
        assert weights == pytest.approx(wanted[name], rel=1e-4, abs=1e-6)
    shares = [len(each["weights"]) for each in told]
    assert sum(shares) == len(wanted) + (world - 1), "each rank holds its stage's parameters, and both the tied one"


def test_what_does_not_fit_is_refused(plan: TrainingPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tuple(inputs(Gpt(), 2).values())
    other = replace(plan, stages=(replace(plan.stages[0], operators=("nothing",)), *plan.stages[1:]))
    with pytest.raises(InvalidArgumentError, match="Operator nothing of stage 0 is not in the captured step"):
        parallelize(model(), other, given)
    with pytest.raises(InvalidArgumentError, match="A ServingPlan trains nothing"):
        parallelize(model(), ServingPlan(plan_id="p", created_at_s=0, models=(), workers=(), assignments=()), given)
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(FailedPreconditionError, match="for 2 devices, and there are 3 processes"):
        parallelize(model(), plan, given)
