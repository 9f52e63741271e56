"""Numbers whose tables are made together are those that a search tries in any case."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from headway.planner.training.micro_batches import search_micro_batches, upcoming

_NUMBERS = [1, 2, 4, 8, 16, 32, 64, 128]


@dataclass(frozen=True, slots=True)
class Cut:
    num_micro_batches: int
    iteration_s: float


def tried(best: int, *, num_devices: int) -> tuple[list[int], list[Sequence[int]]]:
    """The numbers of a search where one is best, and those that were announced together."""
    found: list[int] = []
    together: list[Sequence[int]] = []

    def cut(number: int) -> Cut:
        if not any(number in each for each in together):
            together.append(upcoming(_NUMBERS, number, known=[n for each in together for n in each]))
        found.append(number)
        return Cut(number, abs(_NUMBERS.index(number) - _NUMBERS.index(best)) + 1.0)

    search_micro_batches(_NUMBERS, cut, num_devices=num_devices, report=lambda _: None, should_stop=lambda: False)
    return found, together


@pytest.mark.parametrize("best", _NUMBERS)
@pytest.mark.parametrize("num_devices", [1, 4, 64])
def test_at_most_one_number_is_made_for_nothing(best: int, num_devices: int) -> None:
    found, together = tried(best, num_devices=num_devices)
    made = [number for each in together for number in each]
    assert len(set(made)) == len(made)
    assert set(found) <= set(made)
    assert len(made) - len(found) <= 1
    assert 2 * len(together) <= len(found) + 2
