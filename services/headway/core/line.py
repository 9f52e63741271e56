"""Requests in line for devices that take one batch at a time: who is next, and how far a batch may grow. Pure.

The worker's one-pass engine decides by it, the router too for those that find no room and when it predicts what the
worker will do; the simulator's kernel does the same, compiled.
"""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum


class QueuePolicy(StrEnum):
    """The policy that orders waiting requests."""

    FCFS = "fcfs"
    """First come, first served."""

    LEAST_SLACK = "least-slack"
    """Who could wait least before it misses its objective; one without any could wait `UNBOUND_WAIT_S`."""

    PRIORITY = "priority"
    """The lowest `priority` of the request."""


UNBOUND_WAIT_S = 30.0
"""Within which after its arrival a request without an objective is to begin: it does not starve."""

Rank = tuple[float, ...]
"""The lowest is next; equals in the order in which they came. Empty where nobody overtakes anybody."""


def rank_of(policy: QueuePolicy, *, arrived_s: float, latest_start_s: float, priority: int) -> Rank:
    """A request's place in line.

    Args:
        latest_start_s: when it must begin to be in time, if it had the devices to itself; infinite for no objective.
    """
    match policy:
        case QueuePolicy.LEAST_SLACK:
            # Less the time that it is now, which is the same for all.
            return (latest_start_s if latest_start_s < math.inf else arrived_s + UNBOUND_WAIT_S,)
        case QueuePolicy.PRIORITY:
            return (priority,)
    return ()


def batch_size(deadlines_s: Sequence[float], finish_s: Callable[[int], float]) -> int:
    """Returns how many requests, from the head of a line on, can be one batch that is done by the earliest of their
    deadlines.

    0 where not even the head alone would be in time: it has no chance any more (AlpaServe drops it).

    Args:
        deadlines_s: deadlines of the requests that may be in the batch, in line order; infinite for none.
        finish_s: when a batch of that many would be done; it never falls as the batch grows.
    """
    earliest_s = math.inf
    for index, deadline_s in enumerate(deadlines_s):
        earliest_s = min(earliest_s, deadline_s)
        if earliest_s < math.inf and finish_s(index + 1) > earliest_s:
            return index
    return len(deadlines_s)
