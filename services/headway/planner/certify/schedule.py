"""Checks pipeline schedules and repetends against their placement."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from headway.core.schedule import Repetend, Schedule, TaskPlacement

_RELATIVE = 1e-6
"""What rounding may add up to, of the makespan or of the memory."""


def find_schedule_violations(schedule: Schedule) -> list[str]:
    """Lists the rules of equation (1) that a schedule breaks, a sentence each; empty for a valid one."""
    if broken := list(_coverage(schedule)):
        return broken
    capacities = schedule.placement.capacities
    return [
        *_overlaps(schedule),
        *_dependencies(schedule),
        *([] if capacities is None else _memory(schedule, capacities)),
    ]


def find_repetend_violations(placement: TaskPlacement, repetend: Repetend) -> list[str]:
    """Lists what keeps a repetend from being repeated for ever; empty for a valid one."""
    if len(repetend.starts) != len(placement.tasks) or len(repetend.indices) != len(placement.tasks):
        return ["The repetend does not have each task once."]
    slack = _RELATIVE * repetend.period
    found = []
    for device, on in enumerate(placement.tasks_by_device):
        order = sorted(on, key=lambda i: repetend.starts[i])
        starts = [repetend.starts[i] for i in order]
        after = [*starts[1:], starts[0] + repetend.period] if starts else []
        for i, start, following in zip(order, starts, after, strict=True):
            if start + placement.tasks[i].time > following + slack:
                found.append(f"Device {device}: {placement.tasks[i].name} has not ended when the next task starts.")
        if placement.capacities is not None:
            memory = placement.capacities[device]
            held = sum(repetend.indices[i] * placement.tasks[i].memory for i in on)
            for i in order:
                held += placement.tasks[i].memory
                if held > memory + _RELATIVE * abs(memory):
                    found.append(f"Device {device} holds {held:g} of {memory:g} once {placement.tasks[i].name} starts.")
    for each in placement.dependencies:
        before, after_task = placement.tasks[each.before], placement.tasks[each.after]
        ahead = repetend.indices[each.before] - repetend.indices[each.after]
        ready = repetend.starts[each.before] + before.time + each.lag - ahead * repetend.period
        if ready > repetend.starts[each.after] + slack:
            found.append(f"{after_task.name} starts before {before.name} of its micro-batch is there.")
    return found


def task_label(schedule: Schedule, task: int, micro_batch: int) -> str:
    """'F0 of micro-batch 3'"""
    return f"{schedule.placement.tasks[task].name} of micro-batch {micro_batch}"


def _coverage(schedule: Schedule) -> Iterator[str]:
    tasks = range(len(schedule.placement.tasks))
    seen = Counter((run.task, run.micro_batch) for run in schedule.runs)
    for task, micro_batch in sorted(seen):
        if task not in tasks or not 0 <= micro_batch < schedule.num_micro_batches:
            yield f"Task {task} of micro-batch {micro_batch} is not part of the work."
        elif seen[task, micro_batch] > 1:
            yield f"{task_label(schedule, task, micro_batch)} runs {seen[task, micro_batch]} times."
    for micro_batch in range(schedule.num_micro_batches):
        for task in tasks:
            if (task, micro_batch) not in seen:
                yield f"{task_label(schedule, task, micro_batch)} is missing."
    for run in schedule.runs:
        if not run.start >= 0:
            yield f"Task {run.task} of micro-batch {run.micro_batch} starts at {run.start}."


def _overlaps(schedule: Schedule) -> Iterator[str]:
    slack = _RELATIVE * schedule.makespan
    for device, runs in enumerate(schedule.runs_by_device):
        for run, following in pairwise(runs):
            if schedule.end(run) > following.start + slack:
                first, second = (task_label(schedule, each.task, each.micro_batch) for each in (run, following))
                yield f"Device {device}: {second} starts at {following.start:g}, before {first} ends."


def _dependencies(schedule: Schedule) -> Iterator[str]:
    slack = _RELATIVE * schedule.makespan
    run_of = {(run.task, run.micro_batch): run for run in schedule.runs}
    for each in schedule.placement.dependencies:
        for micro_batch in range(schedule.num_micro_batches):
            before, after = run_of[each.before, micro_batch], run_of[each.after, micro_batch]
            if schedule.end(before) + each.lag > after.start + slack:
                first, second = (
                    task_label(schedule, each.before, micro_batch),
                    task_label(schedule, each.after, micro_batch),
                )
                yield f"{second} starts at {after.start:g}, before the result of {first} is there."


def _memory(schedule: Schedule, capacities: Sequence[float]) -> Iterator[str]:
    for device, (runs, bound) in enumerate(zip(schedule.runs_by_device, capacities, strict=True)):
        for run, held in zip(runs, schedule.memory_after_starts(device), strict=True):
            if held > bound + _RELATIVE * abs(bound):
                label = task_label(schedule, run.task, run.micro_batch)
                yield f"Device {device} holds {held:g} of {bound:g} in {label}."
                break
