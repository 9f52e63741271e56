"""Small placements, and by trying everything what is best for them."""

import random
from collections.abc import Iterator

from headway.core.schedule import Dependency, Task, TaskKind, TaskPlacement


def random_placement(seed: int) -> TaskPlacement:
    """A chain there and back over two or three devices, at times with a task on all of them, and at times with a bound
    on memory that one micro-batch at least fits in."""
    rng = random.Random(seed)
    num_devices = rng.choice((2, 2, 3))
    num_stages = rng.choice((2, 3)) if num_devices == 2 else 2
    every = tuple(range(num_devices))
    stages = [every if rng.random() < 0.2 else (rng.randrange(num_devices),) for _ in range(num_stages)]
    tasks = [
        Task(name=f"F{i}", devices=devices, time=rng.choice((1, 1, 2)), memory=rng.choice((0, 1, 1, 2)))
        for i, devices in enumerate(stages)
    ]
    for i in reversed(range(num_stages)):
        time = rng.choice((1, 2, 2, 3))
        tasks.append(Task(name=f"B{i}", devices=stages[i], time=time, memory=-tasks[i].memory, kind=TaskKind.BACKWARD))
    lag = rng.choice((0, 0, 0, 1))
    dependencies = tuple(Dependency(before=i, after=i + 1, lag=lag) for i in range(len(tasks) - 1))
    placement = TaskPlacement(
        name=f"random {seed}", num_devices=num_devices, tasks=tuple(tasks), dependencies=dependencies
    )
    most = max(sum(max(tasks[i].memory, 0) for i in on) for on in placement.tasks_by_device)
    memory = rng.choice((None, most, most + 1))
    return TaskPlacement(
        name=placement.name,
        num_devices=num_devices,
        tasks=placement.tasks,
        dependencies=dependencies,
        memory=memory,
    )


def shortest_period(placement: TaskPlacement) -> int:
    """The smallest period for which some starts can be repeated for ever.

    Each task starts less than a period after it could: later ones are the same repetition with more held.
    """
    period = int(placement.lower_bound)
    while not any(_fits(placement, starts, period) for starts in _starts(placement, period, [])):
        period += 1
    return period


def shortest_makespan(placement: TaskPlacement, num_micro_batches: int) -> float:
    """Of all sequences in which tasks can be started one after the other, each as early as that allows."""
    return min(_makespans(placement, num_micro_batches, {}, [0.0] * placement.num_devices))


def _starts(placement: TaskPlacement, period: int, starts: list[int]) -> Iterator[list[int]]:
    task = len(starts)
    if task == len(placement.tasks):
        yield starts
        return
    ready = 0
    for each in placement.dependencies:
        if each.after == task:
            ready = max(ready, int(starts[each.before] + placement.tasks[each.before].time + each.lag))
    for start in range(ready, ready + (period if task else 1)):
        if all(_apart(placement, period, (other, starts[other]), (task, start)) for other in range(task)):
            yield from _starts(placement, period, [*starts, start])


def _apart(placement: TaskPlacement, period: int, one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two tasks never run on one device at the same time, when both are repeated."""
    first, second = placement.tasks[one[0]], placement.tasks[other[0]]
    if not set(first.devices) & set(second.devices):
        return True
    after = (other[1] - one[1]) % period
    return first.time <= after and after + second.time <= period


def _fits(placement: TaskPlacement, starts: list[int], period: int) -> bool:
    if placement.memory is None:
        return True
    for on in placement.tasks_by_device:
        for moment in range(period):
            now = moment + 100 * period
            held = sum(placement.tasks[i].memory * ((now - starts[i]) // period + 1) for i in on)
            if held > placement.memory:
                return False
    return True


def _makespans(
    placement: TaskPlacement, count: int, ends: dict[tuple[int, int], float], free: list[float]
) -> Iterator[float]:
    if len(ends) == count * len(placement.tasks):
        yield max(ends.values())
        return
    for task in range(len(placement.tasks)):
        micro_batch = sum(1 for other, _ in ends if other == task)
        needs = [each for each in placement.dependencies if each.after == task]
        if micro_batch == count or any((each.before, micro_batch) not in ends for each in needs):
            continue
        each_task = placement.tasks[task]
        if not _has_room(placement, each_task, ends):
            continue
        ready = [ends[each.before, micro_batch] + each.lag for each in needs]
        end = max([*ready, *(free[device] for device in each_task.devices)]) + each_task.time
        later = [end if device in each_task.devices else until for device, until in enumerate(free)]
        yield from _makespans(placement, count, {**ends, (task, micro_batch): end}, later)


def _has_room(placement: TaskPlacement, task: Task, ends: dict[tuple[int, int], float]) -> bool:
    if placement.memory is None:
        return True
    return all(
        task.memory + sum(placement.tasks[i].memory for i, _ in ends if device in placement.tasks[i].devices)
        <= placement.memory
        for device in task.devices
    )
