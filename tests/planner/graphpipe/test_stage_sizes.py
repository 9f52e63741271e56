"""Sizes of micro-batches that differ from stage to stage, beside all that there could be."""

from itertools import product

import numpy as np
import pytest

from headway.planner.graphpipe.in_flight import shortest_warm_up, simulated_in_flight
from headway.planner.graphpipe.pipeline import GraphPipeline
from headway.planner.graphpipe.schedule import ScheduledStage, kfkb
from headway.planner.graphpipe.search import search_graph
from headway.planner.graphpipe.stage_sizes import at_sizes, with_stage_sizes
from tests.planner.graphpipe.problems import random_problem


def pipeline_of(seed: int, *, is_tight: bool) -> GraphPipeline | None:
    rng = np.random.default_rng(seed)
    found = search_graph(random_problem(rng, size=5, num_devices=4, share=0.4, is_tight=is_tight))
    return None if found is None else found.fastest


@pytest.mark.parametrize("is_tight", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_no_other_size_of_one_stage_is_faster(seed: int, is_tight: bool) -> None:
    pipeline = pipeline_of(seed, is_tight=is_tight)
    if pipeline is None:
        assert is_tight
        return
    problem, found = pipeline.problem, with_stage_sizes(pipeline)
    assert found.iteration_s <= pipeline.iteration_s
    assert all(held <= problem.memory_bytes for held in found.device_bytes)
    own = [stage.micro_batch for stage in found.stages]
    every = [at_sizes(pipeline, sizes) for sizes in product(problem.micro_batches(), repeat=len(own))]
    best_s = min((each.iteration_s for each in every if each is not None), default=np.inf)
    assert found.iteration_s >= min(best_s, pipeline.iteration_s) * (1 - 1e-9)
    for number, size in enumerate(own):
        for other in {2 * size, size // 2} & set(problem.micro_batches()):
            changed = at_sizes(pipeline, [*own[:number], other, *own[number + 1 :]])
            assert changed is None or changed.iteration_s >= found.iteration_s * (1 - 2e-6)


@pytest.mark.parametrize("seed", range(10))
def test_a_refined_pipeline_is_no_slower_and_fits(seed: int) -> None:
    found = search_graph(random_problem(np.random.default_rng(seed), size=6, num_devices=4, share=0.3, is_tight=False))
    assert found is not None
    refined = found.refined
    assert refined.iteration_s <= with_stage_sizes(found.fastest).iteration_s
    assert sorted(at for stage in refined.stages for at in stage.operators) == list(range(6))
    assert refined.num_devices <= refined.problem.num_devices
    assert all(held <= refined.problem.memory_bytes for held in refined.device_bytes)


@pytest.mark.parametrize("seed", range(60))
def test_the_warm_up_is_the_shortest_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch = 16
    later: list[ScheduledStage] = []
    for _ in range(3):
        size = int(rng.choice([1, 2, 4]))
        forward_s, backward_s = (float(rng.integers(1, 9)) for _ in range(2))
        stage = ScheduledStage(
            micro_batch=size,
            forward_s=forward_s,
            backward_s=backward_s,
            passes=(),
            successors=(0,) if later else (),
        )
        passes = simulated_in_flight(stage, later, batch=batch)
        assert kfkb(batch // size, warm_up=shortest_warm_up(stage, later, batch=batch)) == passes
        moved = [
            ScheduledStage(
                micro_batch=each.micro_batch,
                forward_s=each.forward_s,
                backward_s=each.backward_s,
                passes=each.passes,
                successors=tuple(at + 1 for at in each.successors),
            )
            for each in later
        ]
        first = ScheduledStage(
            micro_batch=size,
            forward_s=forward_s,
            backward_s=backward_s,
            passes=passes,
            successors=(1,) if later else (),
        )
        later = [first, *moved]
