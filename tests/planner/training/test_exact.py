"""Chosen stages solved once more: as good as every choice there is, never worse, and the same by both solvers."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from headway.core.batching import at_batch
from headway.core.cost.checked import CheckedCosts
from headway.core.precision import Precision, cast_graph
from headway.planner.certify.training.certificate import find_training_violations
from headway.planner.intra.ilp import Solver, solve
from headway.planner.training.alpa import AlpaSearch, Found, mesh_pricing
from headway.planner.training.exact import refine
from headway.planner.training.plan import make_training_plan
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.space import SearchSpace
from headway.planner.training.stage_problem import StageProblem
from headway.planner.training.stages import StageMaker
from tests.planner.training.steps import COSTS, nodes_of, problem_of

MEMORY = [70 * 10**6, 85 * 10**6, 100 * 10**6, 142 * 10**6, 16 * 10**9]


def tight(memory_bytes: int) -> TrainingProblem:
    return problem_of(nodes_of(2, 2, memory_bytes=memory_bytes), precision=Precision.FLOAT16)


def found_in(problem: TrainingProblem) -> Found:
    found = AlpaSearch(problem, COSTS).with_micro_batches(4)
    assert found is not None
    return found


def maker_of(problem: TrainingProblem, found: Found) -> StageMaker:
    pricing = mesh_pricing(problem.cluster, [CheckedCosts(each) for each in COSTS])
    return StageMaker(step=found.step, pricing=pricing, prices=found.prices)


def refined(problem: TrainingProblem, found: Found, solver: Solver) -> Found:
    maker = maker_of(problem, found)
    return refine(found, maker, problem.cluster, solver=solver, should_stop=lambda: False)


def stage_problem(problem: TrainingProblem, found: Found, number: int) -> StageProblem:
    maker = maker_of(problem, found)
    layout = found.layouts[number]
    layers = maker.layers(layout)
    return StageProblem(
        layers=layers,
        memory=replace(maker.memory(layout, layers), parameters={}),
        num_micro_batches=found.num_micro_batches,
        in_flight=layout.in_flight,
        memory_bytes=problem.cluster.groups[0].memory_bytes,
    )


@pytest.mark.parametrize("memory_bytes", MEMORY)
def test_it_is_never_worse_fits_and_is_the_same_by_both_solvers(memory_bytes: int) -> None:
    problem = tight(memory_bytes)
    found = found_in(problem)
    by_highs, by_cbc = (refined(problem, found, solver) for solver in Solver)
    assert by_highs.iteration_s <= found.iteration_s
    assert by_highs.iteration_s == pytest.approx(by_cbc.iteration_s, rel=1e-6)
    assert all(stage.memory.total_bytes <= memory_bytes for stage in by_highs.stages)


def test_somewhere_between_two_prices_of_memory_it_is_faster() -> None:
    gains = []
    for memory_bytes in range(60 * 10**6, 150 * 10**6, 10 * 10**6):
        problem = tight(memory_bytes)
        found = AlpaSearch(problem, COSTS).with_micro_batches(4)
        if found is not None:
            gains.append(1 - refined(problem, found, Solver.HIGHS).iteration_s / found.iteration_s)
    assert max(gains) > 1e-3


@pytest.mark.parametrize("seed", range(8))
def test_any_choice_holds_what_the_stage_made_of_it_holds_and_takes_as_long(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = tight(MEMORY[seed % 3])
    found = found_in(problem)
    number = seed % len(found.stages)
    stage_of, layout = stage_problem(problem, found, number), found.layouts[number]
    kept = [[int(rng.integers(len(own)))] for own in stage_of.strategies]
    program = stage_of.problem(kept)
    choice = (0,) * len(program.cost_s)
    chosen = [own[at] for own, [at] in zip(stage_of.strategies, kept, strict=True)]
    stage = maker_of(problem, found).made(layout, stage_of.chosen(chosen))
    micro_batch_s = stage.forward_s + stage.backward_s + stage.once_s / found.num_micro_batches
    assert program.objective_s(choice) == pytest.approx(micro_batch_s)
    held = stage.memory.total_bytes
    assert held <= program.peak_bytes(choice) * (1 + 1e-6) + 8  # each part is rounded
    assert program.peak_bytes(choice) <= 1.1 * held  # a gradient that is scattered is counted as long as its layer runs


@pytest.mark.parametrize("seed", range(6))
def test_no_choice_of_few_strategies_is_better_than_the_programs(seed: int) -> None:
    """Beside brute force, on some strategies of each node."""
    rng = np.random.default_rng(seed)
    problem = tight(100 * 10**6)
    found = found_in(problem)
    stage_of = stage_problem(problem, found, 0)
    kept = [sorted(rng.choice(len(own), min(2, len(own)), replace=False).tolist()) for own in stage_of.strategies]
    for node in range(9, len(kept)):
        kept[node] = kept[node][:1]
    program = stage_of.problem(kept)
    choices = list(product(*(range(len(own)) for own in kept), (0,)))
    peaks = sorted(program.peak_bytes(choice) for choice in choices)
    program = replace(program, memory_limit_bytes=peaks[len(peaks) // 3])
    fitting = [choice for choice in choices if program.peak_bytes(choice) <= peaks[len(peaks) // 3]]
    best = min(program.objective_s(choice) for choice in fitting)
    for solver in Solver:
        assert solve(program, solver=solver).cost_s == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("memory_bytes", MEMORY[1:4])
def test_plans_with_refined_stages_are_certified(memory_bytes: int) -> None:
    problem = replace(tight(memory_bytes), space=SearchSpace(mesh_shapes=((2, 2), (1, 4), (4, 1), (1, 2), (2, 1))))
    plan = make_training_plan(
        problem,
        COSTS,
        method="alpa",
        nonce="test",
        report=lambda _: None,
        should_stop=lambda: False,
        to_document=lambda _: {},
    )
    step = cast_graph(at_batch(problem.graph, plan.micro_batch), problem.precision)
    assert not find_training_violations(plan, step, problem.cluster, graph_hash=problem.graph.content_hash)


def test_programs_that_are_too_large_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = tight(MEMORY[1])
    found = found_in(problem)
    better = refined(problem, found, Solver.HIGHS)
    monkeypatch.setattr("headway.planner.training.exact._MOST_PAIRS", 0)
    assert refined(problem, found, Solver.HIGHS) == found
    assert better.iteration_s <= found.iteration_s
