import pytest

from headway.cli.supervisor.backoff import Backoff


def test_the_delay_doubles_up_to_five_seconds() -> None:
    backoff = Backoff()
    delays_s = [backoff.next_delay_s(lived_s=0.5) for _ in range(8)]
    assert delays_s == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])
    assert backoff.num_quick_deaths == 8


def test_a_long_life_starts_it_over() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.next_delay_s(lived_s=0.5)
    assert backoff.next_delay_s(lived_s=10) == 0.1
    assert backoff.num_quick_deaths == 1
