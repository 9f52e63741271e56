"""A model that fits nowhere: how much is missing, and what would be enough."""

from dataclasses import replace

import pytest

from headway.core.codec import to_document
from headway.core.errors import FailedPreconditionError
from headway.core.training_cluster import TrainingCluster
from headway.planner.training.alpa import AlpaSearch
from headway.planner.training.misfit import misfit_of
from headway.planner.training.plan import make_training_plan
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.space import SearchSpace, StageSize
from tests.planner.training.steps import COSTS, nodes_of, problem_of

TIGHT = problem_of(nodes_of(memory_bytes=40 * 10**6))


def fits(problem: TrainingProblem) -> bool:
    search = AlpaSearch(problem, COSTS)
    return search.run(report=lambda _: None, should_stop=lambda: False) is not None


def with_memory(num_bytes: int) -> TrainingProblem:
    return replace(TIGHT, cluster=TrainingCluster(groups=(nodes_of(memory_bytes=num_bytes),)))


def test_what_is_missing_is_what_would_be_enough() -> None:
    misfit = misfit_of(TIGHT, COSTS)
    assert misfit.missing_bytes is not None
    needed = 40 * 10**6 + misfit.missing_bytes
    assert fits(with_memory(needed))
    assert not fits(with_memory(int(0.98 * needed)))


def test_the_nearest_fits_fit() -> None:
    misfit = misfit_of(TIGHT, COSTS)
    assert misfit.times_nodes is not None
    assert misfit.batch is not None
    more = nodes_of(misfit.times_nodes, memory_bytes=40 * 10**6)
    assert not fits(TIGHT)
    assert fits(replace(TIGHT, cluster=TrainingCluster(groups=(more,))))
    assert fits(replace(TIGHT, batch=misfit.batch))
    assert not fits(replace(TIGHT, batch=2 * misfit.batch))


def test_the_error_says_bytes_on_each_device_and_the_nearest_fit() -> None:
    with pytest.raises(FailedPreconditionError) as caught:
        make_training_plan(
            TIGHT,
            COSTS,
            nonce="test",
            report=lambda _: None,
            should_stop=lambda: False,
            to_document=to_document,
        )
    misfit = misfit_of(TIGHT, COSTS)
    assert f"lacks {misfit.missing_bytes} bytes" in caught.value.message
    assert f"{misfit.times_nodes} nodes" in caught.value.hint
    assert f"a batch of {misfit.batch}" in caught.value.hint
    assert caught.value.field == "cluster"


def test_nothing_near_is_told_too() -> None:
    misfit = misfit_of(with_memory(10**6), COSTS)
    assert (misfit.times_nodes, misfit.batch) == (None, None)
    assert "devices with more memory" in misfit.error().hint


def test_a_pipeline_that_no_memory_makes_possible_is_no_matter_of_bytes() -> None:
    space = SearchSpace(stage_size=StageSize.ONE)
    misfit = misfit_of(problem_of(nodes_of(2, 4), space=space), COSTS)  # four layers for eight devices
    assert misfit.missing_bytes is None
    assert "No pipeline" in misfit.error().message
