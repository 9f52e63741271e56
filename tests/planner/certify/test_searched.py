"""Plans of the search pass the certifier, which counts their memory by code of its own."""

import pytest

from headway.core.batching import at_batch
from headway.core.catalogue import built_in_catalogue
from headway.core.codec import to_document
from headway.core.cost.catalogued import CatalogueCosts, find_device
from headway.core.plan.training import TrainingPlan
from headway.core.precision import Precision, cast_graph
from headway.planner.certify.training.certificate import find_training_violations
from headway.planner.certify.training.memory import recount
from headway.planner.certify.training.step import PlannedStep
from headway.planner.training.plan import make_training_plan
from headway.planner.training.problem import TrainingProblem
from tests.planner.certify.planned import captured, cluster_of


@pytest.mark.parametrize(
    ("model", "precision", "memory_bytes", "recomputes"),
    [
        ("alpa-gpt3-350m-small", Precision.FLOAT32, 16 * 2**30, False),
        ("alpa-gpt3-350m-small", Precision.FLOAT16, 180_000, True),  # so little that a stage recomputes
        ("wide-resnet-250m-small", Precision.FLOAT32, 16 * 2**30, False),
    ],
)
def test_what_is_found_passes(model: str, precision: Precision, memory_bytes: int, recomputes: bool) -> None:
    problem = TrainingProblem(
        model=model,
        graph=captured(model, 2),
        cluster=cluster_of(memory_bytes=memory_bytes),
        batch=32,
        precision=precision,
        num_layers=4,
        micro_batches=(4,),
    )
    plan = _search(problem)
    graph = cast_graph(at_batch(problem.graph, plan.micro_batch), precision)
    assert find_training_violations(plan, graph, problem.cluster, graph_hash=problem.graph.content_hash) == []
    assert any(stage.recomputes for stage in plan.stages) == recomputes
    step = PlannedStep(plan, graph)
    for number, stage in enumerate(plan.stages):
        counted = recount(step, number)
        assert abs(stage.memory.total_bytes - counted.total_bytes) <= 5  # each part is rounded


def _search(problem: TrainingProblem) -> TrainingPlan:
    return make_training_plan(
        problem,
        [CatalogueCosts(find_device(built_in_catalogue(), "V100-16"))],
        nonce="test",
        report=lambda _: None,
        should_stop=lambda: False,
        to_document=to_document,
    )
