"""Who would be late for a newcomer, of those that a group has admitted."""

from headway.router.interference import (
    Commitment,
    PrefillLine,
    delays_first_token,
    delays_output,
    num_overtaken_tokens,
    waiting_of,
)

LINE = PrefillLine(num_tokens=200, chunk_tokens=100, begin_s=0.0, per_token_s=0.01)


def waiter(num_tokens: int = 100, *, by_s: float, rank: float = 0.0) -> Commitment:
    return Commitment(num_prefill_tokens=num_tokens, first_token_by_s=by_s, rank=(rank,))


def test_the_newest_leases_have_the_tokens_that_wait() -> None:
    old, middle, new = (waiter(by_s=9.0) for _ in range(3))
    assert waiting_of([new, middle, old], num_tokens=150) == [middle, new]


def test_a_newcomer_may_fill_up_the_chunk_of_those_ahead_of_it() -> None:
    newcomer = waiter(50, by_s=9.0)
    assert not delays_first_token(newcomer, [waiter(by_s=2.0), waiter(by_s=2.5)], line=LINE)
    assert delays_first_token(newcomer, [waiter(by_s=2.0), waiter(by_s=2.4)], line=LINE)


def test_who_is_late_anyway_refuses_nobody() -> None:
    assert not delays_first_token(waiter(50, by_s=9.0), [waiter(by_s=0.1), waiter(by_s=0.1)], line=LINE)


def test_those_who_are_overtaken_wait_for_the_newcomer() -> None:
    waiting = [waiter(by_s=2.0, rank=1.0), waiter(by_s=3.5, rank=3.0)]
    urgent = waiter(200, by_s=9.0, rank=2.0)
    assert delays_first_token(urgent, waiting, line=LINE)
    assert num_overtaken_tokens((2.0,), list(reversed(waiting)), num_tokens=200) == 100
    assert num_overtaken_tokens((), list(reversed(waiting)), num_tokens=200) == 0


def test_an_output_bears_as_much_as_its_objective_leaves() -> None:
    running = Commitment(num_prefill_tokens=0, decode_budget_s=2.0, num_gaps=100.0, step_s=0.01)
    assert not delays_output([running], step_s=0.01, prefill_s=1.0)
    assert delays_output([running], step_s=0.01, prefill_s=1.01)
    assert delays_output([running], step_s=0.021, prefill_s=0.0)
    running.bear(step_s=0.015, prefill_s=0.4)
    assert not delays_output([running], step_s=0.01, prefill_s=0.1)
    assert delays_output([running], step_s=0.01, prefill_s=0.11)


def test_an_output_that_takes_too_long_anyway_refuses_nobody() -> None:
    late = Commitment(num_prefill_tokens=0, decode_budget_s=1.0, num_gaps=100.0, step_s=0.02)
    assert not delays_output([late], step_s=0.03, prefill_s=5.0)
