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
        gaps_s = [watch.note(1, index=index, now_s=float(step)) for index in (0, 1)]
        assert gaps_s == ([None, None] if step == 1 else [1.0, 1.0])
    assert watch.tpot_s == 1.0
    assert watch.note_next(5.5, index=0) == 0.5
    assert watch.note_next(6.0, index=1) == 1.0
