"""The strategies that the search is compared with."""

from collections import Counter

import pytest

from headway.core.device_kind import DeviceKind
from headway.core.placement import GroupShape, PlacedModel, Placement
from headway.planner.placement.baselines import (
    fixed_groups,
    replace_by_window,
    selective_replication,
    uniform_replication,
)
from headway.planner.placement.simulator import Rules, attainment
from tests.planner.placement.conftest import Reference, gamma_trace, group, profile, trace

MODELS = [
    PlacedModel(name=name, profiles=(profile([0.4], weight_bytes=4), profile([0.21, 0.21], weight_bytes=2)))
    for name in "abcd"
]
CLUSTER = {"num_devices": 4, "memory_bytes": 8}
KIND = DeviceKind(nodes=(4,), memory_bytes=8)


def test_uniform_replication_gives_every_model_as_many_devices() -> None:
    placement = uniform_replication(MODELS, **CLUSTER)
    assert Counter(name for placed in placement.groups for name in placed.models) == dict.fromkeys("abcd", 2)
    assert {len(placed.models) for placed in placement.groups} == {2}


def test_uniform_replication_is_the_recorded_one(reference: Reference) -> None:
    case = next(each for each in reference.cases if each["id"].startswith("b1"))
    recorded = next(each for each in case["results"] if each["policy"] == "sr-uniform")
    placement = uniform_replication(
        reference.models(case), num_devices=8, memory_bytes=case["cluster"]["mem_budget_bytes"]
    )
    assert placement == reference.placement(case, recorded)


def test_a_model_too_large_for_a_device_is_left_out() -> None:
    assert uniform_replication(MODELS, num_devices=2, memory_bytes=3) == Placement(groups=(group(1, 1), group(1, 1)))


@pytest.mark.parametrize("seed", range(4))
def test_selective_replication_never_loses_to_uniform(seed: int) -> None:
    workload = gamma_trace(list("abcd"), rate=1.2, cv=3.0, duration_s=300, slo_s=2.0, seed=seed)
    selective = selective_replication(MODELS, [KIND], workload=workload, rules=Rules.ARTIFACT)
    uniform = uniform_replication(MODELS, **CLUSTER)
    found, least = (attainment(MODELS, each, workload, Rules.ARTIFACT) for each in (selective, uniform))
    assert found >= least
    assert all(placed.shape == GroupShape(pp=1, op=1) for placed in selective.groups)


def test_selective_replication_beats_the_recorded_uniform_on_traces_it_has_not_seen(reference: Reference) -> None:
    for case in reference.cases[3:]:
        models, cluster = reference.models(case), case["cluster"]
        kinds = [DeviceKind(nodes=(cluster["num_devices"],), memory_bytes=cluster["mem_budget_bytes"])]
        train = reference.workload(case, train=True)
        placement = selective_replication(models, kinds, workload=train, rules=Rules.ARTIFACT)
        recorded = {each["policy"]: each["slo_attainment"] for each in case["results"] if each["protocol"] == "heldout"}
        heldout = attainment(models, placement, reference.workload(case), Rules.ARTIFACT)
        assert heldout >= max(recorded["sr-uniform"], recorded["sr-greedy"]) - 0.005


def test_fixed_groups_have_one_shape_and_find_the_recorded_greedy(reference: Reference) -> None:
    case = next(each for each in reference.cases if each["id"].startswith("b2"))
    models, train = reference.models(case), reference.workload(case, train=True)
    found = fixed_groups(
        models,
        [DeviceKind(nodes=(8,), memory_bytes=case["cluster"]["mem_budget_bytes"])],
        shape=GroupShape(pp=2, op=1),
        workload=train,
        rules=Rules.ARTIFACT,
    )
    recorded = next(
        each for each in case["results"] if (each["policy"], each["protocol"]) == ("mp-greedy-2", "heldout")
    )
    assert {placed.shape for placed in found.placement.groups} == {GroupShape(pp=2, op=1)}
    heldout = attainment(models, found.placement, reference.workload(case), Rules.ARTIFACT)
    assert heldout == pytest.approx(recorded["slo_attainment"], abs=0.01)


def test_replacing_follows_traffic_that_moves_between_models() -> None:
    one_at_a_time = [[60.0 * phase + each * 0.13 for each in range(400)] for phase in range(4)]
    workload = trace(list("abcd"), one_at_a_time, slo_s=1.0)
    kinds = [DeviceKind(nodes=(4,), memory_bytes=4)]
    still = selective_replication(MODELS, kinds, workload=workload, rules=Rules.SERVING)
    moving = replace_by_window(MODELS, kinds, workload=workload, rules=Rules.SERVING)
    assert len(moving.placements) == 4
    assert moving.attainment > attainment(MODELS, still, workload, Rules.SERVING) + 0.3
    assert all(
        {name for placed in each.groups for name in placed.models} == {"abcd"[n]}
        for n, each in enumerate(moving.placements)
    )
