"""The traffic that a search looks at: windows of a long trace, and resamples that it must serve as well."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from headway.planner.placement.workload import Workload, concatenate

WINDOW_SLOS = 100.0
"""A window is so many largest SLOs long: much longer than queues and bursts, as it begins with empty queues."""
FEWEST_WINDOWS = 8
NUM_BLOCKS = 50
"""Parts of a trace that are compared to see how far numbers of requests vary by chance."""
CHANCE_SIGMAS = 2.0
GAP_FACTOR = 2.0
"""Between traces there is a gap of so many largest SLOs, in which queues run empty."""
NO_SLO_S = 60.0
"""The largest SLO of a workload that has none."""


def thin(workload: Workload, max_requests: int) -> Workload:
    """Picks evenly spread windows with about `max_requests` in all, moved together; the trace itself where it has no
    more."""
    count = len(workload)
    rate = count / max(float(workload.arrival_s[-1]), 1e-9)
    size = int(min(WINDOW_SLOS * _largest_slo_s(workload) * rate, count)) + 1
    num_windows = max(max_requests // size, FEWEST_WINDOWS)
    if count <= max(max_requests, num_windows * size):
        return workload
    starts = np.linspace(0, count - size, num_windows).astype(np.int64)
    windows = [
        workload.take(slice(start, start + size), start_s=float(workload.arrival_s[start])) for start in starts.tolist()
    ]
    return join(windows)


def resample(workload: Workload, count: int, *, kinds: Sequence[int], seed: int) -> Workload:
    """Appends `count` traces like it, against tuning a placement to what chance did in one trace.

    In each, every model's arrivals are moved in time, cyclically, which keeps its own rate and bursts and mixes which
    models' bursts meet. They move by up to a tenth of the span, so that models that follow one daily rhythm still do.
    And models that can't be told apart, of one kind and with rates that differ by no more than chance, swap arrivals.

    Args:
        kinds: of each model; equal where models are alike but for their traffic.
    """
    rng = np.random.default_rng(seed)
    span_s = float(workload.arrival_s[-1])
    if span_s == 0:
        return workload
    classes = alike(workload, kinds)
    traces = [workload]
    for _ in range(count):
        moved = workload.moved(rng.uniform(-0.1, 0.1, len(workload.models)) * span_s, span_s=span_s)
        swapped = np.arange(len(workload.models), dtype=np.int32)
        for members in classes:
            swapped[members] = rng.permutation(members)
        traces.append(replace(moved, model=swapped[moved.model]))
    return join(traces)


def alike(workload: Workload, kinds: Sequence[int]) -> list[list[int]]:
    """Finds sets of models of one kind and one SLO whose numbers of requests differ by no more than chance.

    How far chance goes is seen from how unlike parts of the trace are.
    """
    num_models = len(workload.models)
    edges = np.linspace(0, float(workload.arrival_s[-1]), NUM_BLOCKS + 1)[1:-1]
    block = np.searchsorted(edges, workload.arrival_s, side="right")
    counts = np.zeros((num_models, NUM_BLOCKS))
    np.add.at(counts, (workload.model, block), 1)
    total, variance = counts.sum(axis=1), counts.var(axis=1) * NUM_BLOCKS
    largest_s, smallest_s = np.zeros(num_models), np.full(num_models, np.inf)
    np.maximum.at(largest_s, workload.model, workload.slo_s)
    np.minimum.at(smallest_s, workload.model, workload.slo_s)
    classes: list[list[int]] = []
    for model in sorted(range(num_models), key=lambda each: (kinds[each], largest_s[each], total[each], each)):
        first = classes[-1][0] if classes else model
        is_like = all(each[first] == each[model] for each in (kinds, largest_s, smallest_s))
        difference = total[model] - total[first]
        if classes and is_like and difference <= CHANCE_SIGMAS * np.sqrt(variance[model] + variance[first]):
            classes[-1].append(model)
        else:
            classes.append([model])
    return classes


def join(traces: list[Workload]) -> Workload:
    """Joins traces one after the other, with a gap between them."""
    if len(traces) == 1:
        return traces[0]
    spans_s = [float(trace.arrival_s[-1]) + GAP_FACTOR * _largest_slo_s(trace) for trace in traces]
    return concatenate(traces, [0.0, *accumulate(spans_s[:-1])])


def _largest_slo_s(workload: Workload) -> float:
    finite = workload.slo_s[np.isfinite(workload.slo_s)]
    return float(finite.max()) if len(finite) else NO_SLO_S
