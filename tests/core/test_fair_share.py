"""Shares between tenants: bounded differences, nothing saved up, nothing to decide for one."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidArgumentError
from headway.core.fair_share import FairShare, check_weight

MAX_COST = 50
COSTS = st.lists(st.integers(1, MAX_COST), min_size=1, max_size=60)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    costs=st.fixed_dictionaries({"a": COSTS, "b": COSTS, "c": COSTS}),
    weights=st.fixed_dictionaries({name: st.sampled_from([0.5, 1.0, 4.0]) for name in "abc"}),
)
def test_two_who_always_have_requests_differ_by_one_request_of_each_at_most(
    costs: dict[str, list[int]], weights: dict[str, float]
) -> None:
    fair_share, served = FairShare(), dict.fromkeys("abc", 0.0)
    lines = {name: list(line) for name, line in costs.items()}
    for name in "abc":
        fair_share.enter(name, weight=weights[name])
    while all(lines.values()):
        name = min("abc", key=fair_share.time)
        cost = lines[name].pop()
        fair_share.charge(name, cost)
        served[name] += cost / weights[name]
        for other in "abc":
            assert abs(served[name] - served[other]) <= MAX_COST * max(1 / weights[name], 1 / weights[other])


def test_who_was_idle_has_saved_nothing_up_and_who_flooded_still_owes() -> None:
    fair_share = FairShare()
    fair_share.enter("flood")
    fair_share.charge("flood", 10_000)
    fair_share.enter("late")
    assert fair_share.time("late") == fair_share.time("flood") == 10_000
    fair_share.charge("flood", 500)
    fair_share.leave("flood")
    fair_share.enter("flood")
    assert fair_share.time("flood") - fair_share.time("late") == 500


def test_debts_end_when_nobody_has_a_request() -> None:
    fair_share = FairShare()
    for name in "ab":
        fair_share.enter(name)
    fair_share.charge("a", 100)
    for name in "ab":
        fair_share.leave(name)
    for name in "ab":
        fair_share.enter(name)
    assert fair_share.time("a") == fair_share.time("b") == 0


def test_shares_are_of_those_that_have_requests() -> None:
    fair_share = FairShare()
    assert fair_share.share("a", 12) == 12
    fair_share.enter("a", weight=2.0)
    assert (fair_share.share("a", 12), fair_share.share("b", 12)) == (12, 4)
    assert not fair_share.is_shared
    fair_share.enter("b")
    fair_share.enter("b")
    assert (fair_share.share("a", 12), fair_share.share("b", 12)) == (8, 4)
    assert fair_share.is_shared
    fair_share.leave("b")
    assert fair_share.is_shared
    fair_share.leave("b")
    assert not fair_share.is_shared
    fair_share.charge("b", 5)  # which has left
    assert fair_share.time("a") == 0


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(InvalidArgumentError, match="tenant_weight"):
        check_weight(weight, field="tenant_weight")
