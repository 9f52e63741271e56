"""The search over numbers of micro-batches. Pure."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

_WORSE = 2  # numbers in a row that are no better, after which no more are tried
_FILLING = 2  # micro-batches for each device: a pipeline with a stage on each is mostly full


class Pipeline(Protocol):
    """What was found for one number of micro-batches."""

    @property
    def num_micro_batches(self) -> int: ...

    @property
    def iteration_s(self) -> float: ...


P = TypeVar("P", bound=Pipeline)


def search_micro_batches(
    numbers: Sequence[int],
    cut: Callable[[int], P | None],
    *,
    num_devices: int,
    report: Callable[[P], None],
    should_stop: Callable[[], bool],
) -> P | None:
    """Tries numbers of micro-batches as long as it gets better: up from one that fills a pipeline of any depth, and
    down from it where more are no better.

    Args:
        numbers: ascending.
        cut: finds the best pipeline for one number; None where none fits.

    Returns:
        The pipeline with the shortest iteration; None where none fits.
    """
    start = min(range(len(numbers)), key=lambda i: abs(numbers[i] - _FILLING * num_devices))
    best: P | None = None
    for way in (range(start, len(numbers)), range(start - 1, -1, -1)):
        worse = 0
        if best is not None and best.num_micro_batches > numbers[start]:
            break
        for i in way:
            if should_stop() or worse >= _WORSE:
                break
            found = cut(numbers[i])
            if found is not None and (best is None or found.iteration_s < best.iteration_s):
                best, worse = found, 0
                report(found)
            elif best is not None:
                worse += 1
    return best


def upcoming(numbers: Sequence[int], number: int, *, known: Collection[int]) -> list[int]:
    """The numbers that a search tries in any case once it has come to `number`, that one first.

    Args:
        numbers: ascending.
        known: that were tried.
    """
    at = numbers.index(number)
    is_upward = all(number > each for each in known)
    way = numbers[at:] if is_upward else numbers[at::-1]
    return list(way[: _WORSE + 1 if not known else _WORSE])
