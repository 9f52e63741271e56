"""Two models apart and together: what the demo tells, and its picture. Its stack is tested with the benchmark's."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.alpaserve.demo import PLACEMENTS, Comparison, draw, make_problem, table
from headway.core.placement_problem import PlacementProblem
from headway.planner.placement.check import check_placement
from headway.planner.placement.simulator import Rules, simulate
from headway.planner.placement.workloads.source import make_workloads


@pytest.fixture
def found() -> dict[str, Comparison]:
    return {
        "apart": Comparison(simulated=np.array([0.4, 3.0]), measured=np.array([0.5, 3.5])),
        "together": Comparison(simulated=np.array([0.4, 0.8]), measured=np.array([0.5, 1.5])),
    }


def test_the_table_has_measured_beside_simulated(found: dict[str, Comparison]) -> None:
    apart, together = table(found, objective_s=1.0).splitlines()[-2:]
    assert apart.split() == ["apart", "50%", "(50%)", "2.0", "s", "(1.7", "s)"]
    assert together.split() == ["together", "50%", "(100%)", "1.0", "s", "(600.0", "ms)"]


def test_the_picture_is_a_png(found: dict[str, Comparison], tmp_path: Path) -> None:
    path = draw(found, objective_s=1.0, directory=tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_in_the_long_run_sharing_is_the_better_way_by_as_much_as_the_text_says() -> None:
    """1.9 times the mean latency with Gamma arrivals of CV 3 (section 4.3.1)."""
    problem = make_problem(duration_s=20_000.0)
    workload = make_workloads(problem, {}).held_out
    apart, together = (
        simulate(problem.placed_models, placement, workload, Rules.SERVING).mean_latency_s
        for placement in PLACEMENTS.values()
    )
    assert apart / together == pytest.approx(1.9, abs=0.15)


def test_no_device_has_room_for_two_whole_models() -> None:
    problem: PlacementProblem = make_problem(duration_s=1.0)
    for placement in PLACEMENTS.values():
        check_placement(placement, problem.placed_models)
    whole = next(profile for profile in problem.profiles if profile.pp == 1)
    assert 2 * whole.weight_bytes[0] > problem.cluster.memory_bytes >= whole.weight_bytes[0]
