"""Groups that serve next whoever could wait least before it is late, compiled.

A request overtakes others in line, so that its way is known only when it begins; but nobody is let in who would be late
or would make others late, so that everybody who is let in is in time.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from headway.planner.placement.simulator.borrowing import borrowing
from headway.planner.placement.simulator.kernel import Flags, Floats, Ints, index_replicas

NONE = -1

Lines = tuple[Ints, Ints, Floats]
"""Who waits, by rank: the first of each group [num_groups], the next one behind each request, and its rank, which is
when it must begin on an idle group, [num_requests]. Equals in the order in which they came."""

Requests = tuple[Floats, Ints, Floats]
"""Arrival, model, SLO: [num_requests] each."""

Record = tuple[Floats, Ints, Floats]
"""Finish and group of each request (or empty), the sum of latencies by model."""


@borrowing
def enter(ready_s: float, clocks: Floats, stage_s: Floats) -> float:
    """Lets a request into a pipeline; returns when it leaves the last stage."""
    time_s = ready_s
    for stage in range(len(stage_s)):
        time_s = max(time_s, clocks[stage]) + stage_s[stage]
        clocks[stage] = time_s
    return time_s


@borrowing
def stand(i: int, g: int, lines: Lines) -> None:
    """Request i takes its place in line, behind its equals."""
    first, after, rank_s = lines
    before, behind = NONE, first[g]
    while behind != NONE and rank_s[behind] <= rank_s[i]:
        before, behind = behind, after[behind]
    after[i] = behind
    if before == NONE:
        first[g] = i
    else:
        after[before] = i


@borrowing
def advance(
    g: int,
    until_s: float,
    clocks: Floats,
    stage_s: Floats,
    overhead_s: float,
    requests: Requests,
    lines: Lines,
    record: Record,
) -> None:
    """Begins all requests of a group that begin by `until_s`.

    Args:
        stage_s: of the group, [num_models, num_stages].
    """
    arrival_s, model, _ = requests
    first, after, _ = lines
    finish_s, served_by, latency_sum_s = record
    while first[g] != NONE and max(arrival_s[first[g]], clocks[0]) <= until_s:
        i = first[g]
        done_s = enter(arrival_s[i], clocks, stage_s[model[i]]) + overhead_s
        latency_sum_s[model[i]] += done_s - arrival_s[i]
        if len(finish_s):
            finish_s[i], served_by[i] = done_s, g
        first[g] = after[i]


@borrowing
def predict(
    i: int,
    g: int,
    rank_s: float,
    clocks: Floats,
    stage_s: Floats,
    overhead_s: float,
    requests: Requests,
    lines: Lines,
) -> float:
    """Predicts when a group would be done with request i; infinite where that, or somebody behind it, would be late.

    Args:
        clocks: of the group, which are played forward.
    """
    arrival_s, model, slo_s = requests
    first, after, ranks_s = lines
    ahead = first[g]
    while ahead != NONE and ranks_s[ahead] <= rank_s:
        enter(arrival_s[ahead], clocks, stage_s[model[ahead]])
        ahead = after[ahead]
    done_s = enter(arrival_s[i], clocks, stage_s[model[i]])
    if done_s + overhead_s - arrival_s[i] > slo_s[i]:
        return np.inf
    behind = ahead
    while behind != NONE and ranks_s[behind] < np.inf:
        late_s = arrival_s[behind] + (slo_s[behind] - overhead_s)
        if enter(arrival_s[behind], clocks, stage_s[model[behind]]) > late_s:
            return np.inf
        behind = after[behind]
    return done_s


@njit(cache=True, nogil=True)
def serve_by_slack(
    arrival_s: Floats,
    model: Ints,
    slo_s: Floats,
    group_shape: Ints,
    members: Flags,
    num_stages: Ints,
    stage_s: Floats,
    overhead_s: float,
    bounds: NDArray[np.int64],
    limits: NDArray[np.int64],
    finish_s: Floats,
    served_by: Ints,
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Serve all requests, or stop where too many have been refused: the arguments and results of `kernel.serve`.

    A request goes where it is answered first, among the groups where nobody would be late for it.
    """
    start, group = index_replicas(members)
    num_groups, num_models = members.shape
    most_stages = stage_s.shape[2]
    clocks, played = np.zeros((num_groups, most_stages)), np.zeros(most_stages)
    met = np.zeros(num_models, np.int64)
    served = np.zeros((num_groups, num_models), np.int64)
    misses = np.full(len(bounds), -1, np.int64)
    latency_sum_s = np.zeros(num_models)
    requests = (arrival_s, model, slo_s)
    ranks_s = np.empty(len(arrival_s))
    lines = (np.full(num_groups, NONE, np.int32), np.empty(len(arrival_s), np.int32), ranks_s)
    record = (finish_s, served_by, latency_sum_s)
    missed = begin = 0
    for part in range(len(bounds)):
        for i in range(begin, bounds[part]):
            m = model[i]
            best, best_s, best_rank_s = NONE, np.inf, np.inf
            for replica in range(start[m], start[m + 1]):
                g = group[replica]
                own_s = stage_s[group_shape[g], :, : num_stages[group_shape[g]]]
                advance(g, arrival_s[i], clocks[g], own_s, overhead_s, requests, lines, record)
                alone_s = 0.0
                for stage in range(own_s.shape[1]):
                    alone_s += own_s[m, stage]
                rank_s = arrival_s[i] + (slo_s[i] - overhead_s) - alone_s
                played[:] = clocks[g]
                done_s = predict(i, g, rank_s, played, own_s, overhead_s, requests, lines)
                if done_s < best_s:
                    best, best_s, best_rank_s = g, done_s, rank_s
            if best != NONE:
                ranks_s[i] = best_rank_s
                stand(i, best, lines)
                met[m] += 1
                served[best, m] += 1
                continue
            missed += 1
            if len(finish_s):
                finish_s[i], served_by[i] = np.inf, NONE
        begin = bounds[part]
        misses[part] = missed
        if missed > limits[part]:
            misses[-1] = -1
            return misses, met, latency_sum_s, served
    for g in range(num_groups):
        own_s = stage_s[group_shape[g], :, : num_stages[group_shape[g]]]
        advance(g, np.inf, clocks[g], own_s, overhead_s, requests, lines, record)
    return misses, met, latency_sum_s, served
