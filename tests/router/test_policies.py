"""What each policy prefers."""

from dataclasses import replace

import pytest

from headway.core.errors import InvalidArgumentError
from headway.router.decision import choose, explain
from headway.router.policies.balanced import Balanced
from headway.router.policies.least_load import LeastLoad
from headway.router.policies.prefix_affinity import PrefixAffinity
from headway.router.policies.registry import POLICIES, make_policy
from headway.router.policies.round_robin import RoundRobin
from tests.router.test_candidate_group import IDLE, REQUEST

BUSY = replace(IDLE, group_id="busy", num_sequences=4, num_pending_tokens=2000, num_context_tokens=4000)
HOLDER = replace(IDLE, group_id="holder", num_cached_tokens=592)


def test_least_load_prefers_the_idle_group() -> None:
    assert LeastLoad().score(REQUEST, IDLE) < LeastLoad().score(REQUEST, BUSY)


def test_least_load_prefers_fewer_running_sequences_when_no_prompt_waits() -> None:
    few, many = replace(IDLE, num_sequences=2), replace(IDLE, num_sequences=6)
    assert LeastLoad().score(REQUEST, few) < LeastLoad().score(REQUEST, many)


def test_prefix_affinity_prefers_the_holder_of_the_prompt() -> None:
    assert PrefixAffinity().score(REQUEST, HOLDER) < PrefixAffinity().score(REQUEST, IDLE)


def test_balanced_takes_the_holder_when_loads_are_equal() -> None:
    assert choose(REQUEST, [IDLE, HOLDER], policy=Balanced()) is HOLDER


def test_balanced_leaves_the_holder_when_it_is_busier_than_the_prefix_is_worth() -> None:
    busy_holder = replace(BUSY, num_cached_tokens=592)
    assert choose(REQUEST, [IDLE, busy_holder], policy=Balanced()) is IDLE


def test_balanced_is_the_sum_of_its_parts_in_seconds() -> None:
    parts = LeastLoad().score(REQUEST, BUSY) + PrefixAffinity().score(REQUEST, BUSY)
    assert Balanced().score(REQUEST, BUSY) == pytest.approx(parts)


def test_round_robin_takes_whoever_was_chosen_longest_ago() -> None:
    first, second = replace(BUSY, last_chosen=3), replace(IDLE, last_chosen=4)
    assert choose(REQUEST, [first, second], policy=RoundRobin()) is first


@pytest.mark.parametrize("name", POLICIES)
def test_equal_candidates_take_turns(name: str) -> None:
    group = [replace(IDLE, group_id=f"group-{i}") for i in range(3)]
    chosen = []
    for number in range(1, 7):
        best = choose(REQUEST, group, policy=make_policy(name))
        chosen.append(best.group_id)
        group[group.index(best)] = replace(best, last_chosen=number)
    assert chosen == ["group-0", "group-1", "group-2"] * 2


def test_an_unknown_policy_is_refused_with_the_names_of_the_others() -> None:
    with pytest.raises(InvalidArgumentError, match="balanced, least-load, round-robin"):
        make_policy("random")


def test_the_reason_tells_load_cache_and_time() -> None:
    reason = explain(REQUEST, replace(HOLDER, num_sequences=2), num_candidates=3)
    assert reason.startswith("holder is best of 3: 2 sequences there, 592 of 600 prompt tokens cached")
    assert "wait" in reason
    assert "prefill" in reason
