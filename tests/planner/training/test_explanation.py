"""Why a plan was chosen, with numbers that other searches confirm, and what would change it."""

from dataclasses import replace
from functools import cache

import pytest

from headway.core.plan.training import TrainingPlan, TrainingSensitivity
from headway.core.training_cluster import TrainingCluster
from headway.core.units import format_duration
from headway.planner.training.alpa import AlpaSearch
from headway.planner.training.baselines import BASELINES
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.space import SearchSpace
from tests.planner.training.steps import COSTS, nodes_of, problem_of
from tests.planner.training.test_baselines import plan_by

# Of two nodes with a slow network between them, and so little memory that half of it changes the plan.
NODES = nodes_of(2, 2, memory_bytes=142 * 10**6)
PROBLEM = problem_of(NODES, micro_batches=(2, 4, 8))


@cache
def explained() -> TrainingPlan:
    return plan_by("alpa", PROBLEM, explains=True)


def iteration_s(problem: TrainingProblem) -> float | None:
    search = AlpaSearch(problem, COSTS)
    found = [search.with_micro_batches(number) for number in problem.numbers_of_micro_batches()]
    return min((each.iteration_s for each in found if each is not None), default=None)


def sensitivity(what: str, factor: float) -> TrainingSensitivity:
    [found] = [each for each in explained().sensitivities if (each.what, each.factor) == (what, factor)]
    return found


def test_each_baseline_is_an_alternative_with_its_time_or_its_shortfall() -> None:
    plan = explained()
    expected = [name for name, baseline in BASELINES.items() if baseline.unsplit is None]
    assert [each.name for each in plan.alternatives] == expected  # it has neither tokens nor experts
    for each in plan.alternatives:
        text = " ".join(each.why_not)
        if each.iteration_s is None:
            assert "bytes" in text
        elif each.iteration_s > plan.iteration_s * 1.001:
            assert f"It takes {format_duration(each.iteration_s)}" in text
        else:
            assert "as fast" in text


def test_data_parallelism_lacks_so_many_bytes_that_as_many_more_are_enough() -> None:
    [data] = [each for each in explained().alternatives if each.name == "data-parallel"]
    missing = int(data.why_not[0].split("lacks ")[1].split(" bytes")[0])
    larger = replace(NODES, memory_bytes=NODES.memory_bytes + missing)
    problem = replace(PROBLEM, cluster=TrainingCluster(groups=(larger,)))
    assert plan_by("data-parallel", problem).stages


def test_reasons_have_the_numbers_of_other_numbers_of_stages() -> None:
    plan = explained()
    count = len(plan.stages)
    [reason] = [each for each in plan.reasons if each.startswith(f"{count} stage")]
    for other in {1, count - 1, count + 1} & {1, 2, 3, 4} - {count}:
        narrow = replace(PROBLEM, micro_batches=(plan.num_micro_batches,), space=SearchSpace(num_stages=other))
        seconds = iteration_s(narrow)
        said = "does not fit" if seconds is None else f"takes {format_duration(seconds)}"
        assert f"with {other} it {said}" in reason


def test_reasons_are_about_micro_batches_axes_recomputing_zero_and_memory() -> None:
    text = " ".join(explained().reasons)
    for part in ("micro-batch", "weights of", "recompute", "ZeRO", "emory", "Twice of each"):
        assert part in text


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("what", ["memory", "node link", "network"])
def test_what_would_change_is_what_a_search_on_such_nodes_finds(what: str, factor: float) -> None:
    nodes = {
        "memory": replace(NODES, memory_bytes=int(factor * NODES.memory_bytes)),
        "node link": replace(NODES, link=replace(NODES.link, bytes_per_s=factor * NODES.link.bytes_per_s)),
        "network": replace(NODES, network=replace(NODES.network, bytes_per_s=factor * NODES.network.bytes_per_s)),
    }[what]
    expected = iteration_s(replace(PROBLEM, cluster=TrainingCluster(groups=(nodes,))))
    assert sensitivity(what, factor).iteration_s == (None if expected is None else pytest.approx(expected))


def test_half_the_memory_changes_the_shape_and_says_from_what_to_what() -> None:
    found = sensitivity("memory", 0.5)
    assert found.iteration_s is None or found.iteration_s > explained().iteration_s
    assert found.changes
    assert all(" -> " in change for change in found.changes)


def test_twice_the_batch_in_as_large_micro_batches_is_no_other_shape() -> None:
    found = sensitivity("batch", 2.0)
    assert found.iteration_s is not None
    assert explained().iteration_s < found.iteration_s < 2.1 * explained().iteration_s
    assert not any(change.startswith("micro-batches") for change in found.changes)


def test_an_explanation_that_is_stopped_tells_what_it_knows() -> None:
    calls = iter(range(10**6))
    plan = plan_by("alpa", replace(PROBLEM, micro_batches=(4,)), explains=True, stops=lambda: next(calls) > 3)
    assert plan.stages
    assert len(plan.alternatives) < len(BASELINES)
