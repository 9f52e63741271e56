"""What the figures of reliability are made of."""

import pytest

from benchmarks.reliability.secrecy import area_under_curve


@pytest.mark.parametrize(
    ("known", "new", "area"),
    [([1.0, 2.0], [3.0, 4.0], 1.0), ([3.0, 4.0], [1.0, 2.0], 0.0), ([1.0, 3.0], [2.0, 2.0], 0.5), ([1.0], [1.0], 0.5)],
    ids=["always sooner", "always later", "by chance", "at once"],
)
def test_the_area_is_how_often_what_is_known_comes_first(known: list[float], new: list[float], area: float) -> None:
    assert area_under_curve(known, new) == area
