"""Random placements: the search beside the best published schedule that fits."""

import random
from collections.abc import Iterator
from functools import partial
from statistics import mean

from benchmarks.tessel.row import Row, certified, timed
from headway.core.errors import FailedPreconditionError
from headway.core.schedule import Dependency, Placement, Task, TaskKind
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.search import published, search_schedule

_COUNT = 100
_EFFORT = 1.0


def random_rows() -> Iterator[Row]:
    gains, worse, total_s = [], 0, 0.0
    for seed in range(_COUNT):
        placement = random_placement(seed)
        count = 2 * placement.num_devices
        found, cpu_s = timed(partial(certified, placement, count, Limits(effort=_EFFORT)))
        total_s += cpu_s
        others = [each.makespan for each in published(placement, count)]
        try:
            plus = search_schedule(placement, count, Limits(effort=_EFFORT), method="1f1b+")
            others.append(plus.schedule.makespan)
        except FailedPreconditionError:
            pass
        if others:
            gains.append(min(others) / found.schedule.makespan)
            worse += found.schedule.makespan > min(others) * (1 + 1e-9)
    yield Row(
        part="random",
        case=f"{_COUNT} placements, 4 to 8 devices",
        found=f"{worse} worse than the best published; {mean(gains):.2f} times as fast in the mean, "
        f"{max(gains):.2f} at most; {_COUNT - len(gains)} where nothing published fits",
        target="never worse, better in the mean",
        cpu_s=total_s,
        is_met=worse == 0 and mean(gains) > 1,
    )


def random_placement(seed: int) -> Placement:
    """Stages there and back, more of them than devices at times, some on all devices; times differ by half, and memory
    is bound to a few micro-batches."""
    rng = random.Random(seed)
    num_devices = rng.randint(4, 8)
    every = tuple(range(num_devices))
    order = rng.choice((every, every + every[::-1], every + every))
    stages: list[tuple[int, ...]] = [(device,) for device in order]
    for _ in range(rng.choice((0, 0, 1, 2))):
        stages.insert(rng.randrange(len(stages) + 1), every)
    forwards = [
        Task(name=f"F{i}", devices=on, time=rng.randint(50, 150), memory=float(len(on) == 1))
        for i, on in enumerate(stages)
    ]
    backwards = [
        Task(
            name=f"B{i}",
            devices=stages[i],
            time=rng.randint(100, 300),
            memory=-forwards[i].memory,
            kind=TaskKind.BACKWARD,
        )
        for i in reversed(range(len(stages)))
    ]
    tasks = (*forwards, *backwards)
    most = len(order) // num_devices * rng.randint(2, num_devices + 2)
    return Placement(
        name=f"random {seed}",
        num_devices=num_devices,
        tasks=tasks,
        dependencies=tuple(Dependency(before=i, after=i + 1) for i in range(len(tasks) - 1)),
        memory=float(most),
    )
