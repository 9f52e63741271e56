"""Latencies as the router and the metrics are told of them."""

from headway.gateway.measure import Stopwatch


def test_nothing_is_known_before_the_first_token() -> None:
    watch = Stopwatch(10.0, num_sequences=1)
    assert watch.ttft_s is None
    assert watch.tpot_s is None


def test_gaps_are_between_messages() -> None:
    watch = Stopwatch(10.0, num_sequences=1)
    assert watch.note(1, now_s=10.5) is None
    assert watch.note(1, now_s=10.75) == 0.25
    assert watch.ttft_s == 0.5
    assert watch.tpot_s == 0.25
    assert watch.note(2, now_s=11.25) == 0.5
    assert watch.tpot_s == 0.25


def test_sequences_run_side_by_side() -> None:
    watch = Stopwatch(0.0, num_sequences=2)
    for step in range(1, 6):
        watch.note(2, now_s=float(step))
    assert watch.tpot_s == 1.0
