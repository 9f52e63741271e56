"""One request after the other through pipelines of groups, compiled.

A request's way through a group is known when it arrives, so that no event queue is needed: a group is the times at
which its stages fall free.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from headway.planner.placement.simulator.borrowing import borrowing

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Flags = NDArray[np.bool_]


@njit(cache=True, nogil=True)
def index_replicas(members: Flags) -> tuple[Ints, Ints]:
    """Groups of each model: of model m `group[start[m]:start[m + 1]]`, in their order.

    Args:
        members: [num_groups, num_models].
    """
    num_groups, num_models = members.shape
    start = np.zeros(num_models + 1, np.int32)
    group = np.empty(members.sum(), np.int32)
    count = 0
    for model in range(num_models):
        for g in range(num_groups):
            if members[g, model]:
                group[count] = g
                count += 1
        start[model + 1] = count
    return start, group


@borrowing
def finish_of(arrival_s: float, clocks: Floats, stage_s: Floats, num_stages: int) -> float:
    """Returns when the last stage would be done with a request that arrives now."""
    time_s = arrival_s
    for stage in range(num_stages):
        time_s = max(time_s, clocks[stage]) + stage_s[stage]
    return time_s


@borrowing
def choose(
    arrival_s: float,
    first: int,
    last: int,
    group: Ints,
    clocks: Floats,
    stage_s: Floats,
    stages: Ints,
    by_finish: bool,  # noqa: FBT001
) -> int:
    """The replica of [first, last) that takes the request; the first of equals."""
    best, best_s = first, np.inf
    for replica in range(first, last):
        g = group[replica]
        time_s = clocks[g, stages[g] - 1]
        if by_finish:
            time_s = finish_of(arrival_s, clocks[g], stage_s[replica], stages[g])
        if time_s < best_s:
            best, best_s = replica, time_s
    return best


@njit(cache=True, nogil=True)
def serve(  # noqa: C901, PLR0912 - one loop over requests, whose parts share ten arrays
    arrival_s: Floats,
    model: Ints,
    slo_s: Floats,
    group_shape: Ints,
    members: Flags,
    num_stages: Ints,
    stage_s: Floats,
    overhead_s: float,
    by_finish: bool,  # noqa: FBT001
    admission: bool,  # noqa: FBT001
    bounds: NDArray[np.int64],
    limits: NDArray[np.int64],
    finish_s: Floats,
    served_by: Ints,
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Serve all requests, or stop where too many have missed.

    Args:
        group_shape: [num_groups], rows of `num_stages` and of `stage_s` [num_shapes, num_models, max_stages].
        bounds: requests by which each part of the trace ends; the last is their number.
        limits: misses up to the end of each part beyond which there is no point in going on.
        finish_s, served_by: filled for each request if not empty: infinite and -1 where it was refused.

    Returns:
        misses up to the end of each part (the last is -1 if stopped), requests met and the sum of latencies of what was
        served by model, requests served by (group, model).
    """
    start, group = index_replicas(members)
    num_groups, num_models = members.shape
    most_stages = stage_s.shape[2]
    stages = num_stages[group_shape]
    clocks = np.zeros((num_groups, most_stages))
    replica_s = np.empty((len(group), most_stages))
    for m in range(num_models):
        for replica in range(start[m], start[m + 1]):
            replica_s[replica] = stage_s[group_shape[group[replica]], m]
    met = np.zeros(num_models, np.int64)
    served = np.zeros(len(group), np.int64)
    misses = np.full(len(bounds), -1, np.int64)
    latency_sum_s = np.zeros(num_models)
    missed = 0
    begin = 0
    record = len(finish_s) > 0
    for part in range(len(bounds)):
        for i in range(begin, bounds[part]):
            m = model[i]
            first, last = start[m], start[m + 1]
            if first == last:
                missed += 1
                if record:
                    finish_s[i], served_by[i] = np.inf, -1
                continue
            replica = first
            if last - first > 1:
                replica = choose(arrival_s[i], first, last, group, clocks, replica_s, stages, by_finish)
            g = group[replica]
            done_s = finish_of(arrival_s[i], clocks[g], replica_s[replica], stages[g]) + overhead_s
            latency_s = done_s - arrival_s[i]
            on_time = latency_s <= slo_s[i]
            if on_time:
                met[m] += 1
            else:
                missed += 1
            if on_time or not admission:
                time_s = arrival_s[i]
                for stage in range(stages[g]):
                    time_s = max(time_s, clocks[g, stage]) + replica_s[replica, stage]
                    clocks[g, stage] = time_s
                latency_sum_s[m] += latency_s
                served[replica] += 1
                if record:
                    finish_s[i], served_by[i] = done_s, g
            elif record:
                finish_s[i], served_by[i] = np.inf, -1
        begin = bounds[part]
        misses[part] = missed
        if missed > limits[part]:
            misses[-1] = -1
            break
    by_group = np.zeros((num_groups, num_models), np.int64)
    for m in range(num_models):
        for replica in range(start[m], start[m + 1]):
            by_group[group[replica], m] = served[replica]
    return misses, met, latency_sum_s, by_group
