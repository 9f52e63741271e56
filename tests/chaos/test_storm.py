"""A short storm: what has found faults before, then a part that a seed draws. `make chaos` has longer ones."""

import subprocess
import sys

import pytest

from tests.chaos.storm import draw

pytestmark = pytest.mark.timeout(600)

SEED = 30
ALWAYS = [
    "reach controller.launched",
    "reach controller.key-kept",
    "reach controller.plan-kept",
    "lose data",
    "reach worker.computed",
    "cut off worker-0 for 5 s",
]


def test_no_request_is_lost_or_wrong_and_what_was_acknowledged_stays() -> None:
    """In a process of its own, which has a network of its own where that can be made, and says so where it cannot."""
    command = [sys.executable, "-m", "tests.chaos", "--seed", str(SEED), "--most", "2", "--first", *ALWAYS]
    storm = subprocess.run(command, capture_output=True, text=True, check=False)
    assert storm.returncode == 0, storm.stdout + storm.stderr
    assert "violations: 0" in storm.stdout


def test_a_seed_gives_the_same_storm_and_leaves_nothing_out() -> None:
    names = ["a", "b", "c", "d"]
    assert draw(1, names, num=10) == draw(1, names, num=10) != draw(2, names, num=10)
    assert sorted(draw(1, names, num=4)) == names
