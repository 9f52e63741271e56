"""The slowest stage is as fast as in the best of all possible slicings, which small cases are compared with."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import InvalidArgumentError
from headway.planner.inter.stage_slicing import StageSlicer


def brute_force_s(latency_s: list[float], handover_s: list[float], num_stages: int) -> float:
    last = len(latency_s)

    def slowest(bounds: tuple[int, ...]) -> float:
        return max(
            sum(latency_s[start:stop]) + (handover_s[stop - 1] if stop < last else 0.0)
            for start, stop in pairwise(bounds)
        )

    return min(slowest((0, *inner, last)) for inner in combinations(range(1, last), num_stages - 1))


@given(
    layers=st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=9),
    data=st.data(),
)
def test_no_slicing_has_a_faster_slowest_stage(layers: list[tuple[float, float]], data: st.DataObject) -> None:
    latency_s, handover_s = map(list, zip(*layers, strict=True))
    num_stages = data.draw(st.integers(1, len(layers)))
    sliced = StageSlicer(latency_s, max_stages=len(layers), handover_s=handover_s).slices(num_stages)
    assert len(sliced.layers_per_stage) == num_stages
    assert sum(sliced.layers_per_stage) == len(layers)
    assert min(sliced.layers_per_stage) >= 1
    assert sliced.slowest_s == pytest.approx(brute_force_s(latency_s, handover_s, num_stages))


def test_without_handing_over_it_agrees_with_a_bisection_over_the_slowest_stage() -> None:
    """The least bound under which a greedy filling needs no more stages than there are."""
    latency_s = np.random.default_rng(1).random(400)
    slicer = StageSlicer(latency_s.tolist(), max_stages=16)

    def num_needed(bound: float) -> int:
        count, filled = 1, 0.0
        for each in latency_s:
            count, filled = (count + 1, each) if filled + each > bound else (count, filled + each)
        return count

    for num_stages in (1, 2, 5, 16):
        low, high = float(latency_s.max()), float(latency_s.sum())
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if num_needed(middle) <= num_stages else (middle, high)
        assert slicer.slices(num_stages).slowest_s == pytest.approx(high, rel=1e-9)


def test_equal_layers_make_even_stages() -> None:
    assert StageSlicer([1.0] * 48, max_stages=8).slices(8).layers_per_stage == (6,) * 8


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="3 layers cannot be sliced into 4 stages"):
        StageSlicer([1.0, 1.0, 1.0], max_stages=4)
