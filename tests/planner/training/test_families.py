"""Plans for models of the zoo's families pass the certifier: wide layers, and several outputs over several stages."""

import pytest

from headway.core.batching import at_batch
from headway.core.codec import to_document
from headway.core.precision import cast_graph
from headway.planner.certify.training.certificate import find_training_violations
from headway.planner.training.plan import make_training_plan
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.space import SearchSpace
from tests.planner.training.steps import COSTS, problem_of
from tests.profiler.capture.zoo import captured


def _problem(name: str, shape: tuple[int, int]) -> TrainingProblem:
    return problem_of(
        model=name,
        graph=captured(name),
        batch=16,
        micro_batches=(4,),
        space=SearchSpace(mesh_shapes=(shape,), recomputes=(False,)),
    )


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("alpaserve-bert-104b-small", (2, 2)),
        ("dlrm-small", (1, 1)),
        ("nasnet-a-mobile-small", (2, 2)),
    ],
)
def test_a_family_gets_a_plan_that_passes(name: str, shape: tuple[int, int]) -> None:
    problem = _problem(name, shape)
    plan = make_training_plan(
        problem,
        COSTS,
        nonce="test",
        report=lambda _: None,
        should_stop=lambda: False,
        to_document=to_document,
    )
    graph = cast_graph(at_batch(problem.graph, plan.micro_batch), problem.precision)
    assert find_training_violations(plan, graph, problem.cluster, graph_hash=problem.graph.content_hash) == []
