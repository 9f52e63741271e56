"""The load generator and the comparison: on two emulated devices, and what their tables say."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from benchmarks.alpaserve.demo import MODELS, PLACEMENTS, PROFILES, make_problem
from benchmarks.alpaserve.fidelity import generating
from benchmarks.alpaserve.fidelity.cell import Cell, Pattern, measure
from benchmarks.alpaserve.fidelity.load import Observed
from benchmarks.alpaserve.fidelity.overhead import answer_overhead, measure_overhead
from benchmarks.alpaserve.fidelity.patterns import TRACE_FILE, duration_of, function_trace, patterns
from benchmarks.alpaserve.fidelity.placed import write_placement
from benchmarks.alpaserve.fidelity.report import document, markdown
from benchmarks.model import BENCHMARK_SPEC, make_tokenizer
from deploy.demo.checkpoint import write_checkpoint
from deploy.demo.stack import running_stack
from headway.client import AsyncClient
from headway.client.stack import Stack
from headway.core.live_placement import live_placement
from headway.core.plan.placement import PlacementPlan
from headway.planner.placement.workloads.source import make_workloads

SECONDS = 5.0


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> PlacementPlan:
    problem = make_problem(duration_s=SECONDS)
    path = tmp_path_factory.mktemp("plan") / "together.json"
    return write_placement(path, problem, PLACEMENTS["together"], make_workloads(problem, {}))


@pytest.fixture(scope="module")
def cells(plan: PlacementPlan, tmp_path_factory: pytest.TempPathFactory) -> list[Cell]:
    directory = tmp_path_factory.mktemp("stack")
    device = ("--emulate", "2xV100-32", "--memory", "16GiB", "--stage-profiles", str(PROFILES), "--pp", "2")
    models = [part for name in MODELS for part in ("--model", f"{name}=profile:bert-6.7b")]
    pattern = Pattern(name="Gamma", spec="gamma:rate=8,cv=2", files={})
    with running_stack(directory, *device, *models) as stack:
        return asyncio.run(
            measure(
                plan.problem,
                plan.placement,
                patterns=[pattern],
                slo_scales=[2.0],
                duration_s=SECONDS,
                endpoint=stack.grpc_endpoint,
            )
        )


def test_every_request_is_answered_or_refused_and_none_before_it_can_be(cells: list[Cell], plan: PlacementPlan) -> None:
    (cell,) = cells
    assert cell.num_requests > 10
    assert cell.measured_refused > 0
    assert cell.num_requests - cell.measured_refused > 0
    assert 0 <= cell.measured <= 1 - cell.measured_refused / cell.num_requests
    assert cell.measured_mean_latency_s >= min(profile.latency_s for profile in plan.problem.profiles)
    assert cell.simulated == 1 - cell.simulated_refused / cell.num_requests


async def overhead_of(stack: Stack) -> float:
    async with AsyncClient(stack.grpc_endpoint) as client:
        plan = (await client.status()).plan
    assert plan is not None
    placement = live_placement(plan, (generating.MODEL,))
    return await measure_overhead(generating.problem_of(plan), placement, endpoint=stack.grpc_endpoint)


def test_the_overhead_of_first_tokens_is_what_they_take_besides_the_model(tmp_path: Path) -> None:
    write_checkpoint(
        tmp_path / "chat",
        spec=BENCHMARK_SPEC,
        weights={},
        tokenizer=make_tokenizer(BENCHMARK_SPEC.vocab_size),
        recipe={},
    )
    model = ("--model", f"{generating.MODEL}={tmp_path / 'chat'}")
    with running_stack(tmp_path / "state", "--emulate", "1xV100-16", *model) as stack:
        overhead_s = asyncio.run(overhead_of(stack))
    assert overhead_s > 0
    assert answer_overhead(overhead_s) == ("--answer-overhead", f"{1000 * overhead_s:.1f}ms")


def test_the_table_has_a_row_for_each_cell_and_its_verdict(cells: list[Cell]) -> None:
    lines = markdown(cells).splitlines()
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == [
        *("arrivals", "SLO", "requests", "simulated", "measured", "points", "time over simulated"),
    ]
    (cell,) = cells
    assert lines[2].startswith(f"| Gamma | 2x | {cell.num_requests} | {100 * cell.simulated:.1f} % |")
    assert lines[2].endswith(f" {cell.measured_mean_latency_s / cell.simulated_mean_latency_s:.2f} |")
    assert lines[-1].startswith(f"Largest difference {100 * abs(cell.difference):.1f} points")
    assert document(cells)["largest_difference"] == abs(cell.difference)


def test_who_is_refused_or_late_has_missed() -> None:
    seen = Observed(latency_s=np.array([0.5, 1.5, np.inf, 2.0]), slo_s=np.array([1.0, 1.0, 9.0, np.inf]), lag_s=0.0)
    assert seen.attainment == 0.5
    assert seen.num_refused == 1
    assert seen.mean_latency_s == pytest.approx(4 / 3)


def test_patterns_have_the_rate_and_the_same_times_at_every_scale(plan: PlacementPlan) -> None:
    for pattern in patterns(40.0, duration_s=50.0):
        tight, loose = (pattern.workload(plan.problem, slo_scale=scale, duration_s=50.0) for scale in (1.0, 2.0))
        assert tight.arrival_s.tolist() == loose.arrival_s.tolist()
        assert (2 * tight.slo_s).tolist() == loose.slo_s.tolist()
        assert tight.arrival_s[-1] < 50.0
        assert len(tight) == pytest.approx(2000, rel=0.3)


def test_a_row_lasts_until_there_are_enough_requests() -> None:
    assert duration_of(2.0, num_requests=120, at_least_s=25.0) == 60.0
    assert duration_of(100.0, num_requests=120, at_least_s=25.0) == 25.0


def test_functions_come_in_bursts_and_few_have_most_invocations() -> None:
    lines = function_trace(100.0, duration_s=200.0).decode().splitlines()
    assert lines[0] == "app,func,end_timestamp,duration"
    counts = np.unique([line.split(",")[1] for line in lines[1:]], return_counts=True)[1]
    assert np.sort(counts)[-10:].sum() > len(lines) / 2
    assert TRACE_FILE.endswith(".csv")
