"""A short storm: what has found faults before, then a part that a seed draws. `make chaos` has longer ones."""

from pathlib import Path

import pytest

from tests.chaos.storm import draw, storming

pytestmark = pytest.mark.timeout(600)

SEED = 30
ALWAYS = ["reach controller.launched", "reach controller.key-kept", "lose data", "reach worker.computed"]


def test_no_request_is_lost_or_wrong_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    with storming(tmp_path) as storm:
        others = [name for name in storm.happenings() if name not in ALWAYS]
        storm.run([*ALWAYS, *draw(SEED, others, num=2)])
        assert storm.violations() == []
        assert len(storm.crowd.requests) > 20


def test_a_seed_gives_the_same_storm_and_leaves_nothing_out() -> None:
    names = ["a", "b", "c", "d"]
    assert draw(1, names, num=10) == draw(1, names, num=10) != draw(2, names, num=10)
    assert sorted(draw(1, names, num=4)) == names
