"""Groups that batch waiting requests of one model, compiled.

Groups meet only where a request is dispatched, so a group is brought up to date just before a request looks at it.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from headway.planner.placement.simulator.borrowing import borrowing
from headway.planner.placement.simulator.kernel import Flags, Floats, Ints, index_replicas

NONE = -1

Queues = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Flags]
"""Waiting requests as lists: the first and last of each group [num_groups], the next one in the group [num_requests],
the first and last of each (group, model), the next one of the model, and which requests still wait. A request that left
stays in its group's list until it comes to its front."""

Requests = tuple[Floats, Ints, Floats]
"""Arrival, model, SLO: [num_requests] each."""

Record = tuple[Floats, Ints, NDArray[np.int64], Floats]
"""Finish and group of each request (or empty), requests met by model, seconds of work by group."""


@borrowing
def push(request: int, g: int, m: int, queues: Queues) -> None:
    first, last, after, model_first, model_last, model_after, waits = queues
    waits[request] = True
    after[request] = model_after[request] = NONE
    if first[g] == NONE:
        first[g] = request
    else:
        after[last[g]] = request
    last[g] = request
    if model_first[g, m] == NONE:
        model_first[g, m] = request
    else:
        model_after[model_last[g, m]] = request
    model_last[g, m] = request


@borrowing
def oldest(g: int, queues: Queues) -> int:
    """The request that has waited longest in a group, or NONE."""
    first, _, after, _, _, _, waits = queues
    while first[g] != NONE and not waits[first[g]]:
        first[g] = after[first[g]]
    return int(first[g])


@borrowing
def finish_at(start_s: float, clocks: Floats, stage_s: Floats) -> float:
    """Returns when a batch that starts now, or once the first stage is free, leaves the last stage."""
    time_s = start_s
    for stage in range(len(stage_s)):
        time_s = max(time_s, clocks[stage]) + stage_s[stage]
    return time_s


@borrowing
def batch_size_of(
    head: int, start_s: float, clocks: Floats, batch_s: Floats, overhead_s: float, requests: Requests, queues: Queues
) -> int:
    """Returns how many requests of the head's model, from the head on, keep all their SLOs in one batch; 0 if not even
    the head does.
    """
    arrival_s, _, slo_s = requests
    size, request, deadline_s = 0, head, np.inf
    while request != NONE and size < len(batch_s) and batch_s[size, 0] < np.inf:
        deadline_s = min(deadline_s, arrival_s[request] + (slo_s[request] - overhead_s))
        if finish_at(start_s, clocks, batch_s[size]) > deadline_s:
            break
        size += 1
        request = queues[5][request]
    return size


@borrowing
def advance(
    g: int,
    until_s: float,
    clocks: Floats,
    stage_s: Floats,
    period_s: Floats,
    overhead_s: float,
    admission: bool,  # noqa: FBT001
    requests: Requests,
    queues: Queues,
    queued_s: Floats,
    record: Record,
) -> int:
    """Start all batches of a group up to `until_s`; the requests among them that missed.

    Args:
        stage_s: of the group, [num_models, max_batch_size, num_stages].
        period_s: of the group, [num_models].
    """
    arrival_s, model, slo_s = requests
    finish_s, served_by, met, busy_s = record
    missed = 0
    while True:
        head = oldest(g, queues)
        if head == NONE:
            queued_s[g] = 0.0
            return missed
        start_s = max(clocks[0], arrival_s[head])
        if start_s > until_s:
            return missed
        m = model[head]
        size = batch_size_of(head, start_s, clocks, stage_s[m], overhead_s, requests, queues)
        refused = size == 0 and admission
        size = max(size, 1)
        done_s = np.inf
        if not refused:
            done_s = finish_at(start_s, clocks, stage_s[m, size - 1])
            time_s = start_s
            for stage in range(stage_s.shape[2]):
                time_s = max(time_s, clocks[stage]) + stage_s[m, size - 1, stage]
                clocks[stage] = time_s
                busy_s[g] += stage_s[m, size - 1, stage]
        request = head
        for _ in range(size):
            queues[6][request] = False
            queued_s[g] -= period_s[m]
            on_time = not refused and done_s <= arrival_s[request] + (slo_s[request] - overhead_s)
            met[m] += on_time
            missed += not on_time
            if len(finish_s):
                finish_s[request], served_by[request] = done_s + overhead_s, NONE if refused else g
            request = queues[5][request]
        queues[3][g, m] = request


@njit(cache=True, nogil=True)
def serve_batches(
    arrival_s: Floats,
    model: Ints,
    slo_s: Floats,
    group_shape: Ints,
    members: Flags,
    num_stages: Ints,
    stage_s: Floats,
    period_s: Floats,
    total_s: Floats,
    overhead_s: float,
    admission: bool,  # noqa: FBT001
    finish_s: Floats,
    served_by: Ints,
) -> tuple[int, NDArray[np.int64], Floats]:
    """Serve all requests. A request goes where it would be finished first if nothing were batched, among those groups
    where it would be in time if it went ahead of all that waits; with admission it is refused where there is none.

    Args:
        stage_s: [num_shapes, num_models, max_batch_size, max_stages]; the others as `kernel.serve` has them.
        period_s, total_s: the slowest stage and all stages of one request alone, [num_shapes, num_models].

    Returns:
        requests that missed, requests met by model, seconds of work of each group's stages together.
    """
    start, group = index_replicas(members)
    num_groups, num_models = members.shape
    count = len(arrival_s)
    clocks = np.zeros((num_groups, stage_s.shape[3]))
    queued_s = np.zeros(num_groups)
    met = np.zeros(num_models, np.int64)
    busy_s = np.zeros(num_groups)
    requests = (arrival_s, model, slo_s)
    record = (finish_s, served_by, met, busy_s)
    queues = (
        np.full(num_groups, NONE, np.int32),
        np.full(num_groups, NONE, np.int32),
        np.empty(count, np.int32),
        np.full((num_groups, num_models), NONE, np.int32),
        np.full((num_groups, num_models), NONE, np.int32),
        np.empty(count, np.int32),
        np.zeros(count, np.bool_),
    )
    missed = 0
    for i in range(count):
        m = model[i]
        best, best_s = NONE, np.inf
        for replica in range(start[m], start[m + 1]):
            g = group[replica]
            shape = group_shape[g]
            if queues[0][g] != NONE and clocks[g, 0] <= arrival_s[i]:
                own_s = stage_s[shape, :, :, : num_stages[shape]]
                missed += advance(
                    g,
                    arrival_s[i],
                    clocks[g],
                    own_s,
                    period_s[shape],
                    overhead_s,
                    admission,
                    requests,
                    queues,
                    queued_s,
                    record,
                )
            soonest_s = finish_at(arrival_s[i], clocks[g], stage_s[shape, m, 0, : num_stages[shape]]) + overhead_s
            if admission and soonest_s - arrival_s[i] > slo_s[i]:
                continue
            time_s = max(arrival_s[i], clocks[g, 0]) + queued_s[g] + total_s[shape, m]
            if time_s < best_s:
                best, best_s = g, time_s
        if best == NONE:
            missed += 1
            if len(finish_s):
                finish_s[i], served_by[i] = np.inf, NONE
        else:
            push(i, best, m, queues)
            queued_s[best] += period_s[group_shape[best], m]
    for g in range(num_groups):
        shape = group_shape[g]
        own_s = stage_s[shape, :, :, : num_stages[shape]]
        missed += advance(
            g, np.inf, clocks[g], own_s, period_s[shape], overhead_s, admission, requests, queues, queued_s, record
        )
    return missed, met, busy_s
