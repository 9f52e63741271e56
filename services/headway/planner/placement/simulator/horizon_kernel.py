"""What the router has leased to a group of models that answer in one pass, compiled, as `router/horizon.py` has it.

Nobody is batched and nobody overtakes, so that each lease has a known way from the moment it is given.
"""

from typing import NamedTuple

import numpy as np

from headway.planner.placement.simulator.borrowing import borrowing
from headway.planner.placement.simulator.engine_state import NONE, Counts
from headway.planner.placement.simulator.kernel import Floats


class Horizons(NamedTuple):
    """Of groups, [num_groups, ...]: when each stage falls free, and the oldest and newest lease; of each lease when it
    is due, the one before and the one behind it, [num_requests]."""

    free_s: Floats
    first: Counts
    last: Counts
    due_s: Floats
    before: Counts
    behind: Counts


def make_horizons(num_groups: int, max_stages: int, num_requests: int) -> Horizons:
    none = np.full(num_groups, NONE, np.int64)
    return Horizons(
        free_s=np.full((num_groups, max_stages), -np.inf),
        first=none,
        last=none.copy(),
        due_s=np.zeros(num_requests),
        before=np.full(num_requests, NONE, np.int64),
        behind=np.full(num_requests, NONE, np.int64),
    )


@borrowing
def look(g: int, now_s: float, horizons: Horizons) -> None:
    """An answer that is overdue holds up all behind it."""
    first = horizons.first[g]
    if first != NONE and now_s - horizons.due_s[first] > 0:
        _shift(g, now_s - horizons.due_s[first], horizons)


@borrowing
def foresee_answer(g: int, now_s: float, stage_s: Floats, num_stages: int, horizons: Horizons) -> float:
    """When a request would be answered that came now."""
    look(g, now_s, horizons)
    time_s = now_s
    for stage in range(num_stages):
        time_s = max(time_s, horizons.free_s[g, stage]) + stage_s[stage]
    return time_s


@borrowing
def enter(g: int, i: int, now_s: float, stage_s: Floats, num_stages: int, horizons: Horizons) -> None:
    """Request i was leased to the group."""
    look(g, now_s, horizons)
    time_s = now_s
    for stage in range(num_stages):
        time_s = max(time_s, horizons.free_s[g, stage]) + stage_s[stage]
        horizons.free_s[g, stage] = time_s
    horizons.due_s[i] = time_s
    last = horizons.last[g]
    horizons.before[i], horizons.behind[i] = last, NONE
    if last == NONE:
        horizons.first[g] = i
    else:
        horizons.behind[last] = i
    horizons.last[g] = i


@borrowing
def leave(g: int, i: int, now_s: float, is_complete: bool, horizons: Horizons) -> None:  # noqa: FBT001
    """The lease of request i ended."""
    look(g, now_s, horizons)
    before, behind = horizons.before[i], horizons.behind[i]
    if before == NONE:
        horizons.first[g] = behind
    else:
        horizons.behind[before] = behind
    if behind == NONE:
        horizons.last[g] = before
    else:
        horizons.before[behind] = before
    if is_complete:
        _shift(g, now_s - horizons.due_s[i], horizons)
    if horizons.first[g] == NONE:
        horizons.free_s[g] = -np.inf


@borrowing
def _shift(g: int, by_s: float, horizons: Horizons) -> None:
    if by_s:
        for stage in range(horizons.free_s.shape[1]):
            horizons.free_s[g, stage] += by_s
        i = horizons.first[g]
        while i != NONE:
            horizons.due_s[i] += by_s
            i = horizons.behind[i]
