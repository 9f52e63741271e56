"""Schedules that run what is nearest to the end as soon as it can, with a bound on the micro-batches under way: quickly
made for any placement, and good where there are few micro-batches."""

from collections.abc import Iterator

from headway.core.schedule import Schedule, TaskKind, TaskPlacement
from headway.planner.schedule.predefined.listing import Rule, list_schedule
from headway.planner.schedule.timing import task_order

_MOST_RUNS = 1500
"""A schedule of more runs takes longer than its gain is worth."""
_WORSE = 2
"""Bounds in a row that make it no shorter, after which no more are tried."""


def greedy_schedules(placement: TaskPlacement, num_micro_batches: int) -> Iterator[Schedule]:
    """One for each bound from 1 upwards, as long as they get shorter; those that the memory stops are left out."""
    if len(placement.tasks) * num_micro_batches > _MOST_RUNS:
        return
    order, shortest, worse = task_order(placement), float("inf"), 0
    for most in range(1, num_micro_batches + 1):
        made = list_schedule(placement, num_micro_batches, _rule(placement, order, most), method="tessel")
        if made is not None and made.makespan < shortest * (1 - 1e-9):
            shortest, worse = made.makespan, 0
            yield made
        else:
            worse += 1
        if worse > _WORSE:
            return


def _rule(placement: TaskPlacement, order: tuple[int, ...], most: int) -> Rule:
    """Later tasks first, gradients of weights last; a micro-batch begins when that of `most` before it has ended."""
    ranks = [0] * len(order)
    for place, task in enumerate(reversed(order)):
        is_last = placement.tasks[task].kind is TaskKind.WEIGHT
        ranks[task] = place + (len(order) if is_last else 0)
    needing = {each.after for each in placement.dependencies}
    needed = {each.before for each in placement.dependencies}
    ends = tuple((task, most) for task in order if task not in needed)
    limits = tuple(() if task in needing else ends for task in range(len(order)))
    return Rule(ranks=tuple(ranks), limits=limits)
