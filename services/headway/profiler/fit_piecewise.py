"""Fits Alpa's piecewise-linear model of communication to timed messages (dissertation section 3.8.4). Pure."""

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from headway.core.piecewise import PiecewiseLinear


def fit_piecewise(samples: Sequence[tuple[float, float]], *, max_error: float = 0.02) -> PiecewiseLinear:
    """Returns a curve of as few points as bring every size within `max_error` of its seconds, among sizes that were
    timed.

    Several timings of one size count as their median, and a larger message that was quicker as the mean of both.

    Args:
        samples: (size, seconds).

    Raises:
        ValueError: there is no sample, or one cannot be.
    """
    if not samples or not all(0 <= size < math.inf and 0 < seconds < math.inf for size, seconds in samples):
        raise ValueError(f"Sizes should not be negative and seconds positive: {samples!r}.")
    by_size: defaultdict[float, list[float]] = defaultdict(list)
    for size, seconds in samples:
        by_size[size].append(seconds)
    sizes = sorted(by_size)
    rising = _rise([median(by_size[size]) for size in sizes])
    kept = {0, len(sizes) - 1}
    while True:
        model = _through(sizes, rising, kept)
        errors = [abs(model.at(size) / seconds - 1) for size, seconds in zip(sizes, rising, strict=True)]
        worst = max(range(len(sizes)), key=errors.__getitem__)
        if errors[worst] <= max_error:
            break
        kept.add(worst)
    others = [_error_without(number, sizes, rising) for number in range(1, len(sizes) - 1)]
    return PiecewiseLinear(sizes=model.sizes, seconds=model.seconds, relative_error=median(others) if others else 0.0)


def _rise(values: Sequence[float]) -> list[float]:
    """The nearest sequence, in squares, that does not fall (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pool = (value, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, count = pools.pop()
            total = count + pool[1]
            pool = ((mean * count + pool[0] * pool[1]) / total, total)
        pools.append(pool)
    return [mean for mean, count in pools for _ in range(count)]


def _through(sizes: Sequence[float], seconds: Sequence[float], kept: set[int]) -> PiecewiseLinear:
    numbers = sorted(kept)
    return PiecewiseLinear(sizes=tuple(sizes[i] for i in numbers), seconds=tuple(seconds[i] for i in numbers))


def _error_without(number: int, sizes: Sequence[float], seconds: Sequence[float]) -> float:
    others = set(range(len(sizes))) - {number}
    return abs(_through(sizes, seconds, others).at(sizes[number]) / seconds[number] - 1)
