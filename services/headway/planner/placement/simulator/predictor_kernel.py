"""What the router has leased to a group of models that answer in one pass, compiled, as `router/latency_predictor.py`
has it.

Nobody is batched and nobody overtakes, so that each lease has a known way from the moment it is given.
"""

from typing import NamedTuple

import numpy as np

from headway.planner.placement.simulator.borrowing import borrowing
from headway.planner.placement.simulator.engine_state import NONE, Counts
from headway.planner.placement.simulator.kernel import Floats


class LatencyPredictors(NamedTuple):
    """Of groups, [num_groups, ...]: when each stage falls free, and the oldest and newest lease; of each lease when it
    is due, the one before and the one behind it, [num_requests]."""

    free_s: Floats
    first: Counts
    last: Counts
    due_s: Floats
    before: Counts
    behind: Counts


def make_predictors(num_groups: int, max_stages: int, num_requests: int) -> LatencyPredictors:
    none = np.full(num_groups, NONE, np.int64)
    return LatencyPredictors(
        free_s=np.full((num_groups, max_stages), -np.inf),
        first=none,
        last=none.copy(),
        due_s=np.zeros(num_requests),
        before=np.full(num_requests, NONE, np.int64),
        behind=np.full(num_requests, NONE, np.int64),
    )


@borrowing
def look(g: int, now_s: float, predictors: LatencyPredictors) -> None:
    """An answer that is overdue holds up all behind it."""
    first = predictors.first[g]
    if first != NONE and now_s - predictors.due_s[first] > 0:
        _shift(g, now_s - predictors.due_s[first], predictors)


@borrowing
def predict_answer(g: int, now_s: float, stage_s: Floats, num_stages: int, predictors: LatencyPredictors) -> float:
    """Predicts when a request that came now would be answered."""
    look(g, now_s, predictors)
    time_s = now_s
    for stage in range(num_stages):
        time_s = max(time_s, predictors.free_s[g, stage]) + stage_s[stage]
    return time_s


@borrowing
def enter(g: int, i: int, now_s: float, stage_s: Floats, num_stages: int, predictors: LatencyPredictors) -> None:
    """Request i was leased to the group."""
    look(g, now_s, predictors)
    time_s = now_s
    for stage in range(num_stages):
        time_s = max(time_s, predictors.free_s[g, stage]) + stage_s[stage]
        predictors.free_s[g, stage] = time_s
    predictors.due_s[i] = time_s
    last = predictors.last[g]
    predictors.before[i], predictors.behind[i] = last, NONE
    if last == NONE:
        predictors.first[g] = i
    else:
        predictors.behind[last] = i
    predictors.last[g] = i


@borrowing
def leave(g: int, i: int, now_s: float, is_complete: bool, predictors: LatencyPredictors) -> None:  # noqa: FBT001
    """The lease of request i ended."""
    look(g, now_s, predictors)
    before, behind = predictors.before[i], predictors.behind[i]
    if before == NONE:
        predictors.first[g] = behind
    else:
        predictors.behind[before] = behind
    if behind == NONE:
        predictors.last[g] = before
    else:
        predictors.before[behind] = before
    if is_complete:
        _shift(g, now_s - predictors.due_s[i], predictors)
    if predictors.first[g] == NONE:
        predictors.free_s[g] = -np.inf


@borrowing
def _shift(g: int, by_s: float, predictors: LatencyPredictors) -> None:
    if by_s:
        for stage in range(predictors.free_s.shape[1]):
            predictors.free_s[g, stage] += by_s
        i = predictors.first[g]
        while i != NONE:
            predictors.due_s[i] += by_s
            i = predictors.behind[i]
