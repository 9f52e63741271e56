"""Placements by hand, and a constant stream of requests whose answers are known."""

import csv
import io
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from headway.cli.plan_file import write_plan
from headway.core.catalogue.figure import Provenance
from headway.core.line import QueuePolicy
from headway.core.placement import GroupShape, PlacedGroup, Placement
from headway.core.placement_problem import PlacementProblem, ProblemModel, ServingCluster, WorkloadSource
from headway.core.plan.placement import PLACEMENT_PLAN_VERSION, PlacementPlan, PredictedAttainment, Predictions
from headway.core.stage_profile import StageBatch, StageProfile, stage_profile_id
from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack

GIB = 2**30
PATIENT = {"x-headway-slo-ttft-ms": "60000"}
_NOTHING = PredictedAttainment(attainment=0.5, models=(), utilisation=())
_STAGES: dict[str, dict[tuple[int, int], tuple[float, ...]]] = {
    "bert": {(1, 1): (0.03,), (2, 1): (0.02, 0.015)},
    "slow": {(1, 1): (0.2,)},
    "tiny": {(1, 1): (0.2,)},
}


def profiles() -> tuple[StageProfile, ...]:
    return tuple(
        StageProfile(
            profile_id=stage_profile_id(model, "V100-16", pp=pp, op=op),
            model=model,
            hardware="V100-16",
            pp=pp,
            op=op,
            weight_bytes=(4 * GIB // pp,) * pp,
            batches=(StageBatch(batch_size=1, stage_latency_s=stage_s, activation_bytes=(0,) * pp),),
            source="made up",
            provenance=Provenance.IMPORTED,
            created_at_s=0.0,
        )
        for model, layouts in _STAGES.items()
        for (pp, op), stage_s in layouts.items()
    )


def write_placement(path: Path, *groups: tuple[str, str], slo_scale: float = 1000.0) -> str:
    """`("1x1", "tiny one")` is a lone worker with the models tiny and one; all but tiny are encoders. Returns its
    id."""
    names = sorted({name for _, models in groups for name in models.split()})
    plan = PlacementPlan(
        version=PLACEMENT_PLAN_VERSION,
        plan_id=f"placement-{path.stem}",
        created_at_s=0.0,
        problem=PlacementProblem(
            models=tuple(
                ProblemModel(name=name, architecture=name if name in _STAGES else "bert", slo_s=None) for name in names
            ),
            profiles=profiles(),
            cluster=ServingCluster(device="V100-16", num_devices=5, devices_per_node=5, memory_bytes=12 * GIB),
            workload=WorkloadSource(spec="poisson:rate=5", duration_s=20.0, slo_scale=slo_scale),
            queue_policy=QueuePolicy.LEAST_SLACK,
        ),
        placement=Placement(
            groups=tuple(
                PlacedGroup(shape=GroupShape(pp=int(shape[0]), op=int(shape[2])), models=tuple(models.split()))
                for shape, models in groups
            )
        ),
        buckets=(),
        predictions=Predictions(searched=_NOTHING, held_out=_NOTHING),
        search_s=0.0,
    )
    write_plan(plan, path)
    return plan.plan_id


@contextmanager
def placed_stack(directory: Path) -> Iterator[RunningStack]:
    """It begins with one model on all workers; nothing is imported, since placements bring their profiles."""
    models = {"tiny": write_model(directory / "model")}
    running = RunningStack(directory / "state", models, "--emulate", "5xV100", "--max-model-len", "2000").start()
    yield running
    running.stop()


def apply(stack: RunningStack, placement: Path | str, *options: str) -> Any:
    result = stack.headway("apply", str(placement), "--json", *(options or ("--yes",)), timeout_s=120)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def put(stack: RunningStack, directory: Path, *groups: tuple[str, str]) -> None:
    """Has the stack serve these, whatever it served before."""
    write_placement(directory / "put.json", *groups)
    apply(stack, directory / "put.json")


def export(stack: RunningStack) -> list[dict[str, str]]:
    """Requests on record, which are written every half second; none where not one was yet."""
    result = stack.headway("traffic", "export", "--window", "1h")
    if "No requests are on record" in result.stderr:
        return []
    assert result.returncode == 0, result.stderr
    return list(csv.DictReader(io.StringIO(result.stdout)))


def where(stack: RunningStack) -> dict[str, list[list[str]]]:
    """The groups of each model, in the plan in use."""
    homes: dict[str, list[list[str]]] = {}
    for each in stack.status()["plan"]["assignments"]:
        workers = [rank["worker_id"] for rank in each.get("ranks", [])] or [each["worker_id"]]
        homes.setdefault(each["model"], []).append(workers)
    return homes


def embed(stack: RunningStack, model: str) -> Any:
    body = {"model": model, "input": "a b c", "slo_ms": 60_000}
    response = httpx.post(f"{stack.url}/v1/embeddings", json=body, timeout=60)
    assert response.status_code == 200, f"{model}: {response.text}"
    return response.json()["data"][0]["embedding"]


def complete(stack: RunningStack, *, headers: Mapping[str, str] | None = None) -> Any:
    body = {"model": "tiny", "prompt": "the headway between two trains", "max_tokens": 100, "temperature": 0}
    response = httpx.post(f"{stack.url}/v1/completions", json=body, headers=headers, timeout=60)
    assert response.status_code == 200, f"tiny: {response.text}"
    return response.json()["choices"][0]["text"]


@contextmanager
def constant_requests(stack: RunningStack, *models: str) -> Iterator[Counter[str]]:
    """One request after the other to each model; a wrong answer, or none, fails where the block ends. All have time:
    the objectives that a model has refuse none of them.

    Yields how many were answered, by model.
    """
    ask = {
        name: partial(complete, stack, headers=PATIENT) if name == "tiny" else partial(embed, stack, name)
        for name in models
    }
    right = {name: ask[name]() for name in models}
    answered, stop = Counter[str](models), threading.Event()

    def keep_asking(name: str) -> None:
        while not stop.is_set():
            assert ask[name]() == right[name], f"{name} answered otherwise"
            answered[name] += 1

    with ThreadPoolExecutor() as pool:
        asking = [pool.submit(keep_asking, name) for name in itertools.chain(models, models)]
        try:
            yield answered
            time.sleep(0.5)
        finally:
            stop.set()
        for each in asking:
            each.result()
