"""The simulator against the production code, request by request: the same group, the same refusals, the same finish."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.line import QueuePolicy
from headway.core.placement import PlacedModel, Placement
from headway.core.stage_profile import StageBatch, StageProfile
from headway.planner.placement.simulator import Rules, simulate
from headway.planner.placement.workload import Workload
from tests.planner.placement.conftest import Reference, gamma_trace, group, profile, trace
from tests.planner.placement.serving_plane import ServingPlane, StageLatencies, constant, latencies_of

SHAPES = [(1, 1), (2, 1), (1, 2)]
MODELS = [
    PlacedModel(name="a", profiles=(profile([0.4]), profile([0.2, 0.25]), profile([0.3], op=2))),
    PlacedModel(name="b", profiles=(profile([1.0]), profile([0.7, 0.4]), profile([0.6], op=2))),
    PlacedModel(name="c", profiles=(profile([0.15]), profile([0.1, 0.06]), profile([0.1], op=2))),
]
NAMES = [model.name for model in MODELS]
MAX_BATCH_SIZE = 4
BATCHED: StageLatencies = {
    (name, pp, op): tuple(constant(base * scale / pp, per_request_s=each * scale / pp) for scale in (1.0, 0.7)[:pp])
    for name, base, each in [("a", 0.3, 0.1), ("b", 0.5, 0.4), ("c", 0.12, 0.02)]
    for pp, op in SHAPES
}

placements = st.lists(st.tuples(st.sampled_from(SHAPES), st.sets(st.sampled_from(NAMES))), min_size=1, max_size=4).map(
    lambda rows: Placement(groups=tuple(group(*shape, *sorted(names)) for shape, names in rows))
)
slos_s = st.sampled_from([0.5, 1.2, 2.5, 6.0, np.inf])
overheads_s = st.sampled_from([0.0, 0.013, 0.17])


def batched_models() -> list[PlacedModel]:
    """With `BATCHED` as their profiles."""
    return [PlacedModel(name=name, profiles=tuple(_profile(name, *shape) for shape in SHAPES)) for name in NAMES]


def _profile(name: str, pp: int, op: int) -> StageProfile:
    found = profile([1.0] * pp, op=op)
    batches = tuple(
        StageBatch(
            batch_size=size,
            stage_latency_s=tuple(stage.one_pass_s([1] * size) for stage in BATCHED[name, pp, op]),
            activation_bytes=(0,) * pp,
        )
        for size in range(1, MAX_BATCH_SIZE + 1)
    )
    return StageProfile(**{**{slot: getattr(found, slot) for slot in found.__slots__}, "batches": batches})


def assert_equal(
    models: list[PlacedModel], placement: Placement, workload: Workload, *, latencies: StageLatencies, rules: Rules
) -> None:
    predicted = simulate(models, placement, workload, rules)
    plane = ServingPlane(
        placement,
        latencies,
        max_batch_size=rules.max_batch_size,
        answer_overhead_s=rules.request_overhead_s,
        queue_policy=rules.queue_policy,
    )
    finish_s, served_by = plane.play(workload)
    assert predicted.group.tolist() == served_by.tolist()
    assert predicted.finish_s.tolist() == finish_s.tolist()


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    placement=placements,
    slo_s=slos_s,
    overhead_s=overheads_s,
    seed=st.integers(0, 10_000),
    cv=st.sampled_from([0.5, 2.0, 5.0]),
)
def test_requests_one_by_one_are_served_as_the_router_and_the_workers_serve_them(
    placement: Placement, slo_s: float, overhead_s: float, seed: int, cv: float
) -> None:
    workload = gamma_trace(NAMES, rate=1.5, cv=cv, duration_s=8, slo_s=slo_s, seed=seed)
    if len(workload):
        rules = Rules(request_overhead_s=overhead_s)
        assert_equal(MODELS, placement, workload, latencies=latencies_of(MODELS), rules=rules)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    placement=placements,
    slo_s=slos_s,
    overhead_s=overheads_s,
    seed=st.integers(0, 10_000),
    size=st.sampled_from([2, 3, MAX_BATCH_SIZE]),
    cv=st.sampled_from([0.5, 2.0, 5.0]),
)
def test_batches_are_those_of_the_workers(
    placement: Placement, slo_s: float, overhead_s: float, seed: int, size: int, cv: float
) -> None:
    workload = gamma_trace(NAMES, rate=2.5, cv=cv, duration_s=8, slo_s=slo_s, seed=seed)
    if len(workload):
        rules = Rules(max_batch_size=size, request_overhead_s=overhead_s)
        assert_equal(batched_models(), placement, workload, latencies=BATCHED, rules=rules)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    placement=placements,
    scales=st.tuples(*[st.sampled_from([1.5, 3.0, 5.0, 20.0, np.inf])] * 3),
    overhead_s=overheads_s,
    seed=st.integers(0, 10_000),
    cv=st.sampled_from([0.5, 2.0, 5.0]),
)
def test_who_could_wait_least_is_next_in_both_and_nobody_is_late(
    placement: Placement, scales: tuple[float, ...], overhead_s: float, seed: int, cv: float
) -> None:
    workload = gamma_trace(NAMES, rate=2.5, cv=cv, duration_s=8, slo_s=np.inf, seed=seed)
    alone_s = np.array([0.4, 1.0, 0.15])
    workload = replace(workload, slo_s=(alone_s * scales)[workload.model])
    if len(workload):
        rules = Rules(request_overhead_s=overhead_s, queue_policy=QueuePolicy.LEAST_SLACK)
        assert_equal(MODELS, placement, workload, latencies=latencies_of(MODELS), rules=rules)
        outcome = simulate(MODELS, placement, workload, rules)
        served = outcome.group >= 0
        assert (outcome.finish_s - workload.arrival_s <= workload.slo_s + 1e-9)[served].all()


def test_a_burst_at_one_moment_fills_the_groups_in_the_plans_order() -> None:
    burst = trace(NAMES, [[1.0] * 7, [1.0] * 3, [1.0, 1.4, 1.4]], slo_s=3.0)
    placement = Placement(groups=(group(2, 1, "a", "b"), group(1, 1, "a", "c"), group(1, 2, "a", "b", "c")))
    assert_equal(MODELS, placement, burst, latencies=latencies_of(MODELS), rules=Rules.SERVING)


def test_recorded_traces_are_served_as_recorded_placements_would_serve_them(reference: Reference) -> None:
    for case in reference.cases:
        models, workload = reference.models(case), reference.workload(case)
        first = first_of(workload, 150)
        for result in case["results"]:
            placement = reference.placement(case, result)
            for policy in (QueuePolicy.FCFS, QueuePolicy.LEAST_SLACK):
                rules = replace(Rules.SERVING, queue_policy=policy)
                assert_equal(models, placement, first, latencies=latencies_of(models), rules=rules)


def first_of(workload: Workload, count: int) -> Workload:
    return Workload(
        models=workload.models,
        arrival_s=workload.arrival_s[:count],
        model=workload.model[:count],
        slo_s=workload.slo_s[:count],
    )
