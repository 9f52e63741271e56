"""Earliest starts for given orders of devices, and what a schedule's length rests on."""

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise

from headway.core.schedule import Run, Schedule, TaskPlacement

Instance = tuple[int, int]
"""A task and a micro-batch."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """Where the devices' orders fit together in no way: what can never run, where it is in its device's order."""

    device: int
    position: int
    instance: Instance


def start_early(
    placement: TaskPlacement, orders: Sequence[Sequence[Instance]], *, num_micro_batches: int, method: str
) -> Schedule | Stuck:
    """Starts everything as early as the devices' orders and the dependencies allow, in real times.

    Args:
        orders: what each device runs, in order; a task on several devices is in the order of each.
    """
    place, free = [0] * len(orders), [0.0] * len(orders)
    ends: dict[Instance, float] = {}
    needs = needs_of(placement)
    runs: list[Run] = []
    is_moving = True
    while is_moving:
        is_moving = False
        for device, order in enumerate(orders):
            while place[device] < len(order):
                instance = order[place[device]]
                task, micro_batch = instance
                devices = placement.tasks[task].devices
                is_next = all(place[d] < len(orders[d]) and orders[d][place[d]] == instance for d in devices)
                if not is_next or any((before, micro_batch) not in ends for before, _ in needs[task]):
                    break
                ready = [ends[before, micro_batch] + lag for before, lag in needs[task]]
                start = max([free[d] for d in devices] + ready)
                ends[instance] = start + placement.tasks[task].time
                runs.append(Run(start=start, task=task, micro_batch=micro_batch))
                for each in devices:
                    place[each], free[each] = place[each] + 1, ends[instance]
                is_moving = True
    if any(place[device] < len(order) for device, order in enumerate(orders)):
        return _culprit(placement, orders, place)
    return Schedule(placement=placement, num_micro_batches=num_micro_batches, runs=tuple(sorted(runs)), method=method)


def _culprit(placement: TaskPlacement, orders: Sequence[Sequence[Instance]], place: Sequence[int]) -> Stuck:
    """The device whose next task needs, through others too, what is later in its own order; else the first that is
    stuck."""
    stuck = [device for device, order in enumerate(orders) if place[device] < len(order)]
    needs = needs_of(placement)
    for device in stuck:
        task, micro_batch = orders[device][place[device]]
        needed = [task]
        for each in needed:  # grows while it is walked
            needed += [before for before, _ in needs[each] if before not in needed]
        later = {i for i, n in orders[device][place[device] + 1 :] if n == micro_batch}
        if later.intersection(needed):
            return Stuck(device, place[device], (task, micro_batch))
    return Stuck(stuck[0], place[stuck[0]], orders[stuck[0]][place[stuck[0]]])


def needs_of(placement: TaskPlacement) -> list[list[tuple[int, float]]]:
    """By task: what it needs, with the lags."""
    needs: list[list[tuple[int, float]]] = [[] for _ in placement.tasks]
    for each in placement.dependencies:
        needs[each.after].append((each.before, each.lag))
    return needs


def task_order(placement: TaskPlacement) -> tuple[int, ...]:
    """The tasks, each after all that it needs."""
    sorter: TopologicalSorter[int] = TopologicalSorter({i: [] for i in range(len(placement.tasks))})
    for each in placement.dependencies:
        sorter.add(each.after, each.before)
    return tuple(sorter.static_order())


def orders_of(schedule: Schedule) -> list[list[Instance]]:
    """What each device runs, in order."""
    return [[(run.task, run.micro_batch) for run in runs] for runs in schedule.runs_by_device]


def compacted(schedule: Schedule) -> Schedule:
    """The same orders, started as early as they allow: never longer."""
    early = start_early(
        schedule.placement,
        orders_of(schedule),
        num_micro_batches=schedule.num_micro_batches,
        method=schedule.method,
    )
    assert isinstance(early, Schedule), f"a schedule whose orders do not fit together: {early}"
    return early


def critical_path(schedule: Schedule) -> tuple[Run, ...]:
    """A chain of runs without a gap but lags from the start to the end: only a shorter one shortens the schedule."""
    slack = 1e-9 * max(schedule.makespan, 1e-30)
    needs, run_of = needs_of(schedule.placement), {(run.task, run.micro_batch): run for run in schedule.runs}
    before: dict[Run, list[Run]] = {}
    for runs in schedule.runs_by_device:
        for run, following in pairwise(runs):
            before.setdefault(following, []).append(run)
    path = [max(schedule.runs, key=schedule.end)] if schedule.runs else []
    while path and path[-1].start > slack:
        run = path[-1]
        causes = [each for each in before.get(run, ()) if schedule.end(each) >= run.start - slack]
        for task, lag in needs[run.task]:
            cause = run_of[task, run.micro_batch]
            if schedule.end(cause) + lag >= run.start - slack:
                causes.append(cause)
        if not causes:
            break
        path.append(causes[-1])
    return tuple(reversed(path))
