"""Devices of several kinds: the search against brute force and each kind alone, and profiles scaled between them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, combinations_with_replacement, product

import pytest

from headway.core.catalogue import built_in_catalogue
from headway.core.device_kind import DeviceKind
from headway.core.placement import GroupShape, PlacedGroup, PlacedModel, Placement
from headway.core.scaled_profile import scale_profile
from headway.core.stage_profile import StageProfile
from headway.planner.placement.search import SearchOptions, search_kinds
from headway.planner.placement.simulator import Rules, attainment
from headway.planner.placement.workload import Workload
from tests.planner.placement.conftest import gamma_trace, profile

SLOW = DeviceKind(device="slow", nodes=(2,), memory_bytes=10)
FAST = DeviceKind(device="fast", nodes=(2,), memory_bytes=6)
"""Twice as fast, with less memory."""
OPTIONS = SearchOptions(moves=600, resamples=0)


def on_both(known: StageProfile) -> tuple[StageProfile, ...]:
    (alone,) = known.batches
    twice = replace(alone, stage_latency_s=tuple(each / 2 for each in alone.stage_latency_s))
    return replace(known, hardware="slow"), replace(known, hardware="fast", batches=(twice,))


def model(name: str, latency_s: float, weight: int) -> PlacedModel:
    half = -(-weight // 2)
    pipeline = profile([latency_s / 2 + 0.01] * 2, weight_bytes=half)
    return PlacedModel(name=name, profiles=(*on_both(profile([latency_s], weight_bytes=weight)), *on_both(pipeline)))


MODELS = [model("a", 0.5, 5), model("b", 0.8, 4), model("c", 1.2, 8)]


def traffic(seed: int) -> Workload:
    return gamma_trace(["a", "b", "c"], rate=0.7, cv=3.0, duration_s=400, slo_s=2.5, seed=seed)


def choices(shape: GroupShape, kind: DeviceKind) -> list[PlacedGroup]:
    """Every set of models that fits a group."""
    sets = (each for size in range(4) for each in combinations(MODELS, size))
    return [
        PlacedGroup(shape=shape, models=tuple(each.name for each in models))
        for models in sets
        if sum(each.needed_bytes(shape, kind.memory_bytes) or 0 for each in models) <= kind.memory_bytes
    ]


def of_kind(kind: DeviceKind) -> list[tuple[PlacedGroup, ...]]:
    """Every way to use its two devices, also not at all."""
    single, pair = (GroupShape(pp=pp, op=1, device=kind.device) for pp in (1, 2))
    alone = choices(single, kind)
    return [(), *((group,) for group in choices(pair, kind)), *combinations_with_replacement(alone, 2)]


def best(kinds: Sequence[DeviceKind], workload: Workload) -> float:
    placements = product(*map(of_kind, kinds))
    return max(attainment(MODELS, Placement(groups=sum(each, ())), workload, Rules.SERVING) for each in placements)


@pytest.mark.parametrize("seed", range(3))
def test_a_small_search_finds_what_brute_force_finds_and_no_less_than_on_one_kind(seed: int) -> None:
    workload = traffic(seed)
    found = search_kinds(MODELS, [SLOW, FAST], workload=workload, rules=Rules.SERVING, options=OPTIONS)
    assert found.attainment == attainment(MODELS, found.placement, workload, Rules.SERVING)
    assert found.attainment >= best([SLOW, FAST], workload) - 0.004  # it trades a request in 250 for shorter latencies
    for kind in (SLOW, FAST):
        options = replace(OPTIONS, partial=True)
        alone = search_kinds(MODELS, [kind], workload=workload, rules=Rules.SERVING, options=options)
        assert found.attainment >= alone.attainment
        groups = [group for group in found.placement.groups if group.shape.device == kind.device]
        assert sum(group.shape.num_devices for group in groups) <= kind.num_devices
        for group in groups:
            needed = sum(
                each.needed_bytes(group.shape, kind.memory_bytes) for each in MODELS if each.name in group.models
            )
            assert needed <= kind.memory_bytes


def test_a_model_that_fits_one_kind_only_is_put_there() -> None:
    large = PlacedModel(name="c", profiles=on_both(profile([0.3], weight_bytes=9)))
    workload = gamma_trace(["a", "c"], rate=0.5, cv=1.0, duration_s=100, slo_s=3.0, seed=1)
    found = search_kinds([MODELS[0], large], [SLOW, FAST], workload=workload, rules=Rules.SERVING, options=OPTIONS)
    homes = {group.shape.device for group in found.placement.groups if "c" in group.models}
    assert homes == {"slow"}


def test_a_profile_is_scaled_by_the_rate_that_gains_least() -> None:
    catalogue = built_in_catalogue()
    known = replace(profile([0.1, 0.2], weight_bytes=7), hardware="V100-16")
    scaled = scale_profile(known, device="A100-40", catalogue=catalogue)
    factor = scaled.latency_s / known.latency_s
    slow, fast = catalogue.device("V100-16"), catalogue.device("A100-40")
    rates = [
        slow.reached_flops("float16") / fast.reached_flops("float16"),
        slow.reached_bytes_per_s() / fast.reached_bytes_per_s(),
    ]
    assert max(rates) <= factor < 1
    assert scaled.relative_error > 0
    assert (scaled.hardware, scaled.weight_bytes) == ("A100-40", known.weight_bytes)
    again = scale_profile(scaled, device="V100-16", catalogue=catalogue)
    assert again.latency_s >= known.latency_s
