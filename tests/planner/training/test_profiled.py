"""Training plans whose operators are priced as each was measured to take."""

import base64

import pytest

from headway.core.catalogue import built_in_catalogue
from headway.core.catalogue.figure import Provenance
from headway.core.codec import to_document
from headway.core.cost.profiled import ProfiledCosts
from headway.core.graph_file import graph_bytes
from headway.core.operator_seconds import OperatorSeconds
from headway.core.plan.document import plan_from_document
from headway.core.plan.training import TrainingPlan
from headway.core.training_cluster import TrainingCluster
from headway.core.training_search import GRAPH, TrainingSearch
from headway.planner.intra.mesh_costs import OperatorTimes
from headway.planner.jobs.training import run
from tests.planner.training.steps import BATCH, V100, mlp, nodes_of

GRAPH_OF = mlp()
TARGETS = sorted({operator.target for operator in GRAPH_OF.operators})
MEASURED = OperatorSeconds(
    hardware="a CPU, 1 thread",
    seconds={operator.name: 1e-3 * (1 + TARGETS.index(operator.target)) for operator in GRAPH_OF.operators},
    update_s=1e-9,
    relative_error=0.03,
)


def test_an_iteration_takes_what_its_operators_were_measured_to_take() -> None:
    search = TrainingSearch(
        model="mlp",
        batch=BATCH,
        cluster=TrainingCluster(groups=(nodes_of(1, 1),)),
        devices=(built_in_catalogue().devices["V100-16"],),
        precision="float32",
        micro_batches=(1,),
        measured=MEASURED,
        files={GRAPH: base64.b64encode(graph_bytes(GRAPH_OF)).decode()},
    )
    found = run(to_document(search), report=lambda _: None, should_stop=lambda: False, resume=None)
    (stage,) = plan_from_document(TrainingPlan, found).stages
    assert stage.forward_s + stage.backward_s == pytest.approx(sum(MEASURED.seconds.values()), rel=0.01)


def test_other_sizes_take_as_much_longer_as_by_the_devices_figures_and_what_is_unknown_as_all_else() -> None:
    product = next(operator for operator in GRAPH_OF.operators if operator.flops)
    tensors = GRAPH_OF.tensors_by_name()
    loop = product.space.dims[0].name if product.space is not None else ""
    costs = ProfiledCosts(V100, GRAPH_OF, MEASURED)
    whole, half = (costs.time(product, tensors, splits) for splits in ({}, {loop: 2}))
    by_figures = V100.time(product, tensors, {loop: 2}).seconds / V100.time(product, tensors).seconds
    assert whole.seconds == MEASURED.seconds[product.name]
    assert half.seconds == pytest.approx(whole.seconds * by_figures)
    assert (whole.provenance, whole.relative_error) == (Provenance.MEASURED, 0.03)

    half_known = {name: 2 * time.seconds for name, time in zip(MEASURED.seconds, V100.times(GRAPH_OF), strict=True)}
    del half_known[product.name]
    unknown = ProfiledCosts(V100, GRAPH_OF, OperatorSeconds(hardware="a CPU", seconds=half_known))
    guessed = unknown.time(product, tensors)
    assert guessed.seconds == pytest.approx(2 * V100.time(product, tensors).seconds)
    assert guessed.provenance is Provenance.ESTIMATED


def test_an_update_takes_its_numbers_times_what_one_was_measured_to_take() -> None:
    assert OperatorTimes(ProfiledCosts(V100, GRAPH_OF, MEASURED)).adam_s(5000) == pytest.approx(5e-6)
