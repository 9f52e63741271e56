"""What first tokens take beyond the forecast, learned from those that came."""

import random

import pytest

from headway.router.lateness import Lateness


def test_nothing_is_added_while_nothing_was_late() -> None:
    lateness = Lateness()
    assert lateness.margin_s(now_s=0.0) == 0.0
    for number in range(200):
        lateness.observe(-0.1, now_s=float(number))
    assert lateness.margin_s(now_s=200.0) == 0.0


def test_nearly_all_of_the_next_ones_come_within_the_margin() -> None:
    draws, lateness = random.Random(4), Lateness()
    for _ in range(300):
        lateness.observe(draws.gauss(0.1, 0.03), now_s=0.0)
    margin_s = lateness.margin_s(now_s=0.0)
    is_covered = [draws.gauss(0.1, 0.03) <= margin_s for _ in range(2000)]
    assert sum(is_covered) / len(is_covered) >= 0.95
    assert margin_s < 0.25


def test_what_was_late_long_ago_is_forgotten_for_what_came_since() -> None:
    lateness = Lateness()
    for late_s in (*[2.0] * 200, *[0.01] * 200):
        lateness.observe(late_s, now_s=0.0)
    assert lateness.margin_s(now_s=0.0) == 0.01


def test_it_fades_while_nobody_comes_so_that_a_place_is_tried_again() -> None:
    lateness = Lateness()
    lateness.observe(4.0, now_s=100.0)
    margins_s = [lateness.margin_s(now_s=now_s) for now_s in (100.0, 130.0, 160.0)]
    assert margins_s == pytest.approx([4.0, 2.0, 1.0])


def test_answers_that_took_longer_than_foretold_lengthen_the_next_forecast_until_they_are_long_ago() -> None:
    draws, lateness = random.Random(4), Lateness()
    assert lateness.ratio(now_s=0.0) == 1.0
    for _ in range(128):
        lateness.observe_answer(draws.gauss(1.2, 0.1), now_s=100.0)
    ratio = lateness.ratio(now_s=100.0)
    is_covered = [draws.gauss(1.2, 0.1) <= ratio for _ in range(2000)]
    assert 0.9 <= sum(is_covered) / len(is_covered) <= 0.99
    assert lateness.ratio(now_s=103.0) == pytest.approx(1 + (ratio - 1) / 2)
    for _ in range(128):
        lateness.observe_answer(0.8, now_s=104.0)
    assert lateness.ratio(now_s=104.0) == 1.0


def test_one_in_time_long_after_a_hold_up_does_not_bring_that_back() -> None:
    """A place that was held up refused nearly everybody for good: each that it tried made the hold-up new again."""
    lateness = Lateness()
    for _ in range(200):
        lateness.observe(4.0, now_s=0.0)
    lateness.observe(-0.1, now_s=90.0)
    assert lateness.margin_s(now_s=90.0) == pytest.approx(0.5)
    assert lateness.max_without_token > 200
