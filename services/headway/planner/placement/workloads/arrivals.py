"""Arrivals of a Gamma renewal process whose rate and burstiness may change over time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.planner.placement.workloads.bound import MAX_REQUESTS, check_num_requests

_MOST_AT_ONCE = 1 << 20  # requests that are drawn at once: a bursty process may need many more than are likely


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A span of time in which rate and burstiness are constant.

    Attributes:
        duration_s: above 0.
        rate: requests/s, from 0 on.
        cv: coefficient of variation of the times between requests: 1 is Poisson, more is burstier.
    """

    duration_s: float
    rate: float
    cv: float


def gamma_arrivals(windows: Sequence[Window], rng: np.random.Generator) -> NDArray[np.float64]:
    """Draws arrival times in seconds, in order, over all windows one after the other.

    The process is stationary from its first moment on: what is expected in a window of one rate is exactly rate times
    duration. A time between requests that lasts beyond its window goes on in the next, as fast as the rate there.

    InvalidArgumentError where a burst has more than twice `MAX_REQUESTS`.
    """
    if not windows:
        return np.empty(0)
    parts: list[NDArray[np.float64]] = []
    start_s = 0.0
    ahead = _residual(windows[0].cv, rng)  # until the next request, in mean times between requests
    for window in windows:
        length = window.rate * window.duration_s
        if ahead < length:
            at = _renewals(ahead, length, window.cv, rng)
            parts.append(start_s + at[:-1] / window.rate)
            ahead = float(at[-1])
        ahead -= length
        start_s += window.duration_s
    return np.concatenate(parts) if parts else np.empty(0)


def _residual(cv: float, rng: np.random.Generator) -> float:
    """Draws the time from any moment to the next renewal: a uniform part of the interval around it, which is a long
    one."""
    shape = 1 / cv**2
    return float(rng.random() * rng.gamma(shape + 1, 1 / shape))


def _renewals(first: float, length: float, cv: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draws renewals from `first` on, with one beyond `length`."""
    shape = 1 / cv**2
    parts = [np.array([first])]
    last, num_drawn = first, 0
    while last < length:
        num_likely = int(min(_MOST_AT_ONCE, length - last + 4 * cv * (length - last) ** 0.5)) + 8
        times = last + np.cumsum(rng.gamma(shape, 1 / shape, num_likely))
        parts.append(times)
        num_drawn += num_likely
        if num_drawn > 2 * MAX_REQUESTS:
            check_num_requests(num_drawn, what=f"A burst of CV {cv:g}", hint="Lower the cv, or the cv_scale.")
        last = float(times[-1])
    at: NDArray[np.float64] = np.concatenate(parts)
    return at[: int(np.searchsorted(at, length)) + 1]
