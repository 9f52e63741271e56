"""The compiled simulator against an event loop in plain Python, and against what the AlpaServe artifact recorded."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidArgumentError
from headway.core.line import QueuePolicy
from headway.core.placement import PlacedModel, Placement
from headway.planner.placement.simulator import Dispatch, Rules, attainment, simulate
from headway.planner.placement.workload import Workload
from tests.planner.placement.conftest import Reference, gamma_trace, group, profile, trace
from tests.planner.placement.event_loop import play

MODELS = [
    PlacedModel(name="a", profiles=(profile([0.4]), profile([0.2, 0.25]), profile([0.3], op=2))),
    PlacedModel(name="b", profiles=(profile([1.0]), profile([0.7, 0.4]), profile([0.6], op=2))),
    PlacedModel(name="c", profiles=(profile([0.15]), profile([0.1, 0.06]), profile([0.1], op=2))),
]
NAMES = [model.name for model in MODELS]

placements = st.lists(
    st.tuples(st.sampled_from([(1, 1), (2, 1), (1, 2)]), st.sets(st.sampled_from(NAMES))), min_size=1, max_size=4
).map(lambda rows: Placement(groups=tuple(group(*shape, *sorted(names)) for shape, names in rows)))

rules = st.builds(
    Rules,
    dispatch=st.sampled_from(Dispatch),
    admission=st.booleans(),
    stage_overhead=st.sampled_from([0.0, 0.009]),
    request_overhead_s=st.sampled_from([0.0, 0.011]),
    single_precision=st.booleans(),
)


@settings(max_examples=120, deadline=None)
@given(placement=placements, rules=rules, seed=st.integers(0, 10_000), slo_s=st.sampled_from([0.5, 1.7, np.inf]))
def test_every_request_is_served_where_and_when_an_event_loop_serves_it(
    placement: Placement, rules: Rules, seed: int, slo_s: float
) -> None:
    workload = gamma_trace(NAMES, rate=1.5, cv=2.0, duration_s=15, slo_s=slo_s, seed=seed)
    if not len(workload):
        return
    outcome = simulate(MODELS, placement, workload, rules)
    finish_s, served_by = play(MODELS, placement, workload, rules)
    assert outcome.group.tolist() == served_by
    assert outcome.finish_s == pytest.approx(np.array(finish_s), rel=1e-12)
    met = (outcome.group >= 0) & (outcome.finish_s - workload.arrival_s <= workload.slo_s + 1e-6)
    assert outcome.attainment == pytest.approx(met.mean())
    assert attainment(MODELS, placement, workload, rules) == outcome.attainment


def test_recorded_placements_have_the_recorded_attainment(reference: Reference) -> None:
    for case in reference.cases:
        models, workload = reference.models(case), reference.workload(case)
        for result in case["results"]:
            outcome = simulate(models, reference.placement(case, result), workload, Rules.ARTIFACT)
            assert outcome.attainment == pytest.approx(result["slo_attainment"], abs=1e-12), (
                case["id"],
                result["policy"],
            )
            assert outcome.mean_latency_s == pytest.approx(result["mean_latency_served_s"], rel=1e-5)
            assert outcome.latency_percentile_s(99) == pytest.approx(result["p99_s"], rel=1e-5)


def test_looser_slos_and_faster_devices_never_lower_what_one_queue_serves_in_time() -> None:
    workload = gamma_trace(["a"], rate=2.0, cv=3.0, duration_s=500, slo_s=1.0, seed=1)
    alone = Placement(groups=(group(1, 1, "a"),))
    late = Rules(admission=False)
    found = [
        attainment(MODELS, alone, trace(["a"], [list(workload.arrival_s)], slo_s), late)
        for slo_s in (0.3, 0.5, 1, 2, 5)
    ]
    assert found[0] == 0.0
    assert found == sorted(found)


def test_utilisation_is_the_share_of_device_time_spent_on_requests() -> None:
    outcome = simulate(
        MODELS, Placement(groups=(group(2, 1, "a"), group(1, 2, "b"))), trace(["a", "b"], [[1.0], [1.0]]), Rules()
    )
    assert outcome.finish_s.tolist() == [1.45, 1.6]
    assert outcome.utilisation == pytest.approx((0.45 / 1.2, 1.0))


def test_a_model_without_a_group_is_refused_and_counted() -> None:
    outcome = simulate(MODELS, Placement(groups=(group(1, 1, "a"),)), trace(["a", "b"], [[0.0], [0.0, 1.0]]), Rules())
    assert outcome.attainment == pytest.approx(1 / 3)
    assert outcome.attainment_by_model == {"a": 1.0, "b": 0.0}
    assert outcome.num_refused == 2
    assert outcome.latency_s.tolist() == [0.4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arrival_s": np.array([0.0, 2.0, 1.0])}, "Request 2 of the workload comes before"),
        ({"arrival_s": np.array([-1.0, 2.0, 3.0])}, "Request 0 of the workload is no time"),
        ({"arrival_s": np.array([0.0, np.nan, 3.0])}, "Request 1 of the workload is no time"),
        ({"model": np.array([0, 1, 2], np.int32)}, "Request 2 of the workload names no model"),
        ({"slo_s": np.array([1.0, 0.0, 1.0])}, "Request 1 of the workload has an SLO"),
        ({"slo_s": np.array([1.0])}, "3 arrivals, 3 models and 1 SLOs"),
        ({"models": ("a", "z")}, "'z', which is not among the models"),
        ({"arrival_s": np.empty(0), "model": np.empty(0, np.int32), "slo_s": np.empty(0)}, "no request"),
    ],
)
def test_a_workload_out_of_order_is_refused_by_its_request(change: dict, message: str) -> None:
    fields = {
        "models": ("a", "b"),
        "arrival_s": np.array([0.0, 1.0, 2.0]),
        "model": np.array([0, 1, 0], np.int32),
        "slo_s": np.ones(3),
    }
    with pytest.raises(InvalidArgumentError, match=message):
        simulate(MODELS, Placement(groups=(group(1, 1, "a"),)), Workload(**{**fields, **change}), Rules())


@pytest.mark.parametrize(
    ("placed", "message"),
    [
        (group(1, 1, "z"), "Group 0 has 'z'"),
        (group(4, 1, "a"), "Group 0 is 4x1, for which 'a' has no profile"),
        (group(1, 1, "a", "a"), "Group 0 has a model twice"),
    ],
)
def test_a_group_that_cannot_run_is_refused(placed: object, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        simulate(MODELS, Placement(groups=(placed,)), trace(["a"], [[0.0]]), Rules())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"admission": False}, "with admission"),
        ({"max_batch_size": 2}, "one request at a time"),
        ({"dispatch": Dispatch.LAST_STAGE}, "the earliest finish"),
    ],
)
def test_least_slack_first_goes_with_admission_and_without_batches(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Rules(queue_policy=QueuePolicy.LEAST_SLACK, **changes)


def test_requests_of_a_workload_have_no_priorities() -> None:
    with pytest.raises(InvalidArgumentError, match="no priorities"):
        Rules(queue_policy=QueuePolicy.PRIORITY)


def test_a_short_request_overtakes_a_long_one_that_can_wait() -> None:
    """On one device. The fourth could overtake as well, but would make the long one late; the last can wait."""
    slos_s = np.array([np.inf, 2.0, 0.9, 0.9, 3.0])
    workload = replace(trace(["a", "b"], [[0.0, 0.2, 0.3, 0.35], [0.1]]), slo_s=slos_s)
    rules = Rules(queue_policy=QueuePolicy.LEAST_SLACK)
    outcome = simulate(MODELS, Placement(groups=(group(1, 1, "a", "b"),)), workload, rules)
    assert outcome.finish_s.tolist() == pytest.approx([0.4, 1.8, 0.8, np.inf, 2.2])
