"""Other traces of the same character: rate and CV of each model in each window, and arrivals drawn from them
(dissertation sections 4.4.2 and 4.6.2). Pure."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headway.planner.placement.workload import Lengths, Workload
from headway.planner.placement.workloads.arrivals import Window, gamma_arrivals
from headway.planner.placement.workloads.merge import merged

_FEWEST_INTERVALS = 2
_LEAST_CV = 0.01


def fit_windows(arrival_s: NDArray[np.float64], *, window_s: float, duration_s: float) -> list[Window]:
    """Fits the windows of one model's arrivals; the last window may be shorter.

    A window with fewer than three requests says nothing of its CV: it is taken for Poisson.
    """
    num_windows = max(1, int(np.ceil(duration_s / window_s - 1e-9)))
    edges_s = np.minimum(np.arange(num_windows + 1) * window_s, duration_s)
    places = np.searchsorted(arrival_s, edges_s)
    places[-1] = len(arrival_s)
    windows = []
    for start, stop, length_s in zip(places[:-1], places[1:], np.diff(edges_s), strict=True):
        between_s = np.diff(arrival_s[start:stop])
        cv = 1.0
        if len(between_s) >= _FEWEST_INTERVALS and between_s.mean() > 0:
            cv = max(_LEAST_CV, float(between_s.std() / between_s.mean()))
        windows.append(Window(duration_s=float(length_s), rate=float((stop - start) / length_s), cv=cv))
    return windows


def resample(
    workload: Workload,
    *,
    window_s: float,
    duration_s: float,
    rng: np.random.Generator,
    rate_scale: float = 1.0,
    cv_scale: float = 1.0,
) -> Workload:
    """A Gamma process fitted to each model in each window, drawn anew.

    A request's objective is its model's, which is the median of those it had; its lengths are those of one of them.
    """
    arrivals, slos = [], []
    for number in range(len(workload.models)):
        is_its = workload.model == number
        fitted = fit_windows(workload.arrival_s[is_its], window_s=window_s, duration_s=duration_s)
        scaled = [
            Window(duration_s=each.duration_s, rate=each.rate * rate_scale, cv=each.cv * cv_scale) for each in fitted
        ]
        arrivals.append(gamma_arrivals(scaled, rng))
        slos.append(float(np.median(workload.slo_s[is_its])) if is_its.any() else np.nan)
    drawn = merged(workload.models, arrivals, slo_s=slos)
    return drawn if workload.lengths is None else replace(drawn, lengths=_draw_lengths(workload, drawn, rng))


def _draw_lengths(recorded: Workload, drawn: Workload, rng: np.random.Generator) -> Lengths:
    """Prompt and output of one recorded request of the same model together."""
    assert recorded.lengths is not None
    source = np.zeros(len(drawn), np.int64)
    for number in range(len(recorded.models)):
        own, is_its = np.flatnonzero(recorded.model == number), drawn.model == number
        if len(own):
            source[is_its] = rng.choice(own, int(is_its.sum()))
    return recorded.lengths.take(source)
