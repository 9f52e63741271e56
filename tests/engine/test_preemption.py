import pytest

from headway.engine.preemption import PreemptionPolicy, UnitCost


def observe(policy: PreemptionPolicy, *, token_s: float = 0.0, copy_s: float = 0.0) -> None:
    """A step of prefill only, or of copies only."""
    num_tokens, num_copies = (100 if token_s else 0), (10 if copy_s else 0)
    policy.observe_step(
        num_prefill_tokens=num_tokens,
        num_tokens=num_tokens,
        num_copies=num_copies,
        duration_s=num_tokens * token_s + num_copies * copy_s,
        copy_s=num_copies * copy_s,
    )


@pytest.mark.parametrize(("mode", "swaps"), [("swap", True), ("recompute", False)])
def test_a_forced_mode_ignores_what_was_measured(mode: str, swaps: bool) -> None:
    policy = PreemptionPolicy("swap" if mode == "swap" else "recompute")
    observe(policy, token_s=1.0)
    observe(policy, copy_s=0.001 if mode == "recompute" else 1000.0)
    assert policy.prefers_swap(num_tokens=100, num_blocks=1) is swaps


def test_auto_takes_the_cheaper_way_counting_both_directions_of_the_copy() -> None:
    policy = PreemptionPolicy("auto")
    observe(policy, token_s=0.001)
    observe(policy, copy_s=0.004)
    assert policy.prefers_swap(num_tokens=16, num_blocks=1)  # 16 ms against 8 ms
    assert not policy.prefers_swap(num_tokens=16, num_blocks=2)  # 16 ms against 16 ms


def test_a_price_that_is_unknown_is_tried() -> None:
    policy = PreemptionPolicy("auto")
    observe(policy, token_s=0.001)
    assert policy.prefers_swap(num_tokens=16, num_blocks=1)


def test_nothing_to_recompute_is_never_swapped() -> None:
    policy = PreemptionPolicy("auto")
    observe(policy, token_s=0.001)
    assert not policy.prefers_swap(num_tokens=0, num_blocks=0)


def test_steps_that_mostly_decode_tell_nothing_about_prefill() -> None:
    policy = PreemptionPolicy("auto")
    observe(policy, token_s=0.001)
    observe(policy, copy_s=0.004)
    policy.observe_step(num_prefill_tokens=8, num_tokens=16, num_copies=0, duration_s=1000.0, copy_s=0.0)
    assert not policy.prefers_swap(num_tokens=16, num_blocks=2)


def test_copies_do_not_make_the_prefill_of_their_step_look_slow() -> None:
    policy = PreemptionPolicy("auto")
    policy.observe_step(num_prefill_tokens=100, num_tokens=100, num_copies=10, duration_s=1.1, copy_s=1.0)
    assert not policy.prefers_swap(num_tokens=100, num_blocks=1)  # 0.1 s against 0.2 s
    assert policy.prefers_swap(num_tokens=300, num_blocks=1)


def test_costs_follow_a_machine_that_changes_its_pace() -> None:
    cost = UnitCost()
    for _ in range(100):
        cost.observe(10, duration_s=10.0)
    assert cost.seconds == pytest.approx(1.0)
    for _ in range(100):
        cost.observe(10, duration_s=30.0)
    assert cost.seconds == pytest.approx(3.0, rel=0.02)
