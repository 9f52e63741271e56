"""Dynamic batching against groups that keep a list of what waits, stepped from event to event."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidArgumentError
from headway.core.placement import PlacedModel, Placement
from headway.planner.placement.simulator import Rules, attainment, simulate
from headway.planner.placement.workload import Workload
from tests.planner.placement.conftest import gamma_trace, group, profile, trace

BATCHES = {2: 1.3, 4: 1.8, 8: 3.0}
MODELS = [
    PlacedModel(name="a", profiles=(profile([0.4], batches=BATCHES), profile([0.2, 0.25], batches=BATCHES))),
    PlacedModel(name="b", profiles=(profile([0.9], batches=BATCHES), profile([0.6, 0.4], batches={2: 1.9}))),
]
SIZES = {name: {1: 1.0, 2: 1.3, 3: 1.55, 4: 1.8} for name in "ab"}


def factor(name: str, pp: int, size: int) -> float:
    if (name, pp) == ("b", 2):
        return {1: 1.0, 2: 1.9}.get(size, np.inf)
    return SIZES[name][size]


def play(  # noqa: C901 - one state, three events
    placement: Placement, workload: Workload, rules: Rules
) -> list[float]:
    """Finish of each request, infinite where refused."""
    latency = {(model.name, each.pp): each.batches[0].stage_latency_s for model in MODELS for each in model.profiles}
    names = [workload.models[index] for index in workload.model]
    finish = [np.inf] * len(workload)
    waiting: list[list[int]] = [[] for _ in placement.groups]
    clocks = [[0.0] * placed.shape.pp for placed in placement.groups]

    def run_through(g: int, size: int, start_s: float, name: str) -> list[float]:
        times, at_s = [], start_s
        for stage_s, clock in zip(latency[name, len(clocks[g])], clocks[g], strict=True):
            at_s = max(at_s, clock) + stage_s * factor(name, len(clocks[g]), size)
            times.append(at_s)
        return times

    def launch(g: int) -> None:
        head = waiting[g][0]
        start_s = max(clocks[g][0], workload.arrival_s[head])
        alike = [request for request in waiting[g] if names[request] == names[head]][: rules.max_batch_size]

        def fits(batch: list[int]) -> bool:
            done_s = run_through(g, len(batch), start_s, names[head])[-1]
            return done_s < np.inf and all(done_s <= workload.arrival_s[each] + workload.slo_s[each] for each in batch)

        size = 0
        while size < len(alike) and fits(alike[: size + 1]):
            size += 1
        batch = alike[: max(size, 1)]
        waiting[g] = [request for request in waiting[g] if request not in batch]
        if size or not rules.admission:
            clocks[g] = run_through(g, len(batch), start_s, names[head])
            for request in batch:
                finish[request] = clocks[g][-1]

    def launch_until(until_s: float) -> None:
        for g in range(len(waiting)):
            while waiting[g] and max(clocks[g][0], workload.arrival_s[waiting[g][0]]) <= until_s:
                launch(g)

    for request, name in enumerate(names):
        now_s = workload.arrival_s[request]
        launch_until(now_s)
        predicted = {}
        for g, placed in enumerate(placement.groups):
            soonest_s = run_through(g, 1, now_s, name)[-1] - now_s if name in placed.models else np.inf
            if name in placed.models and (not rules.admission or soonest_s <= workload.slo_s[request]):
                queued_s = sum(max(latency[names[each], placed.shape.pp]) for each in waiting[g])
                predicted[g] = max(now_s, clocks[g][0]) + queued_s + sum(latency[name, placed.shape.pp])
        if predicted:
            best_s = min(predicted.values())
            waiting[next(g for g in predicted if predicted[g] <= best_s + 1e-9)].append(request)
    launch_until(np.inf)
    return finish


placements = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.sampled_from(["a", "b", "ab"])), min_size=1, max_size=3
).map(lambda rows: Placement(groups=tuple(group(pp, 1, *names) for pp, names in rows)))


@settings(max_examples=100, deadline=None)
@given(
    placement=placements,
    size=st.sampled_from([2, 3, 4]),
    admission=st.booleans(),
    slo_s=st.sampled_from([1.5, 4.0, np.inf]),
    seed=st.integers(0, 1000),
)
def test_batches_are_those_of_a_plain_queue(
    placement: Placement, size: int, admission: bool, slo_s: float, seed: int
) -> None:
    workload = gamma_trace(["a", "b"], rate=2.0, cv=2.0, duration_s=10, slo_s=slo_s, seed=seed)
    if not len(workload):
        return
    rules = Rules(max_batch_size=size, admission=admission)
    found = simulate(MODELS, placement, workload, rules)
    assert found.finish_s == pytest.approx(np.array(play(placement, workload, rules)), rel=1e-9)
    assert attainment(MODELS, placement, workload, rules) == found.attainment


def test_a_burst_is_served_in_batches_as_long_as_all_keep_their_slos() -> None:
    burst = trace(["a"], [[0.0] * 5], slo_s=1.2)
    outcome = simulate(MODELS, Placement(groups=(group(1, 1, "a"),)), burst, Rules(max_batch_size=8))
    # the first goes alone, then of those that wait a batch of 4 takes 1.8 * 0.4 s
    assert outcome.finish_s.tolist() == pytest.approx([0.4, 1.12, 1.12, 1.12, 1.12])
    tighter = simulate(
        MODELS, Placement(groups=(group(1, 1, "a"),)), trace(["a"], [[0.0] * 5], 1.0), Rules(max_batch_size=8)
    )
    assert tighter.finish_s.tolist() == pytest.approx([0.4, 0.92, 0.92, np.inf, np.inf])


def test_larger_batches_serve_more_of_an_overload() -> None:
    workload = gamma_trace(["a"], rate=5.0, cv=1.0, duration_s=400, slo_s=3.0, seed=2)
    alone = Placement(groups=(group(1, 1, "a"),))
    found = [attainment(MODELS, alone, workload, Rules(max_batch_size=size)) for size in (1, 2, 4, 8)]
    assert found == sorted(found)
    assert found[-1] > found[0] + 0.2


def test_a_profile_without_batch_size_1_is_refused() -> None:
    odd = profile([0.4])
    odd = PlacedModel(name="a", profiles=(type(odd)(**{**{n: getattr(odd, n) for n in odd.__slots__}, "batches": ()}),))
    with pytest.raises(InvalidArgumentError, match="no batch size 1"):
        simulate([odd], Placement(groups=(group(1, 1, "a"),)), trace(["a"], [[0.0]]), Rules(max_batch_size=2))
