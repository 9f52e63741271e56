"""A short storm: what has found faults before, then a part that a seed draws. `make chaos` has longer ones."""

import subprocess
import sys

import pytest

from tests.chaos.storm import draw

SEED = 30
ALWAYS = [
    "reach controller.launched",
    "reach controller.key-kept",
    "reach controller.plan-kept",
    "lose data",
    "reach worker.computed",
    "cut off worker-0 for 5 s",
]
STOPPED = ["router", "worker-0", "gateway-0", "controller"]


def test_no_request_is_lost_or_wrong_and_what_was_acknowledged_stays() -> None:
    storm(ALWAYS, num_drawn=2)


@pytest.mark.parametrize("seconds", [5, 12.5])
def test_who_stands_still_goes_on_and_leaves_nothing_under_way(seconds: float) -> None:
    """Nobody is taken for dead after so short a time: what was asked and released meanwhile is settled without that."""
    told = storm([f"stop {name} for {seconds:g} s" for name in STOPPED], num_drawn=0)
    assert told.count("nothing under way") == len(STOPPED)


def storm(names: list[str], *, num_drawn: int) -> str:
    """What it tells. It is in a process of its own, which has a network of its own where that can be made, and says so
    where it cannot."""
    command = [sys.executable, "-m", "tests.chaos", "--seed", str(SEED), "--most", str(num_drawn), "--first", *names]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "violations: 0" in ended.stdout
    return ended.stdout


def test_a_seed_gives_the_same_storm_and_leaves_nothing_out() -> None:
    names = ["a", "b", "c", "d"]
    assert draw(1, names, num=10) == draw(1, names, num=10) != draw(2, names, num=10)
    assert sorted(draw(1, names, num=4)) == names
