"""Random placements: the search beside the best published schedule that fits."""

import random
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from statistics import mean

from benchmarks.tessel.row import Row, certified, timed
from headway.core.errors import FailedPreconditionError
from headway.core.schedule import Dependency, Task, TaskKind, TaskPlacement
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.search import published, search_schedule

_ROUNDING = 1e-9
_COUNT = 100
_TOGETHER = 10
_EFFORT = 0.1
"""Of both searches, so that all end in some minutes."""


def random_rows() -> Iterator[Row]:
    """A row for every ten placements, and one for all."""
    ratios: list[float | None] = []
    total_s = 0.0
    for first in range(0, _COUNT, _TOGETHER):
        found, cpu_s = timed(partial(_ratios, range(first, first + _TOGETHER)))
        ratios, total_s = ratios + found, total_s + cpu_s
        yield _row(f"placements {first} to {first + _TOGETHER - 1}", found, cpu_s)
    yield _row(f"{_COUNT} placements, 4 to 8 devices", ratios, total_s)


def _row(case: str, ratios: Sequence[float | None], cpu_s: float) -> Row:
    known = [ratio for ratio in ratios if ratio is not None]
    worse = sum(ratio < 1 - _ROUNDING for ratio in known)
    return Row(
        part="random",
        case=case,
        found=f"{worse} worse than the best published; {mean(known or [0.0]):.3f} times as fast in the mean, "
        f"{max(known, default=0.0):.2f} at most; {len(ratios) - len(known)} where nothing published fits",
        target="never worse, better in the mean",
        cpu_s=cpu_s,
        is_met=worse == 0 and mean(known or [0.0]) > 1,
    )


def _ratios(seeds: Iterable[int]) -> list[float | None]:
    """How many times as long the best published schedule that fits takes; None where none does."""
    found: list[float | None] = []
    for seed in seeds:
        placement = random_placement(seed)
        count = 2 * placement.num_devices
        ours = certified(placement, count, Limits(effort=_EFFORT)).schedule.makespan
        others = [each.makespan for each in published(placement, count)]
        try:
            plus = search_schedule(placement, count, Limits(effort=_EFFORT), method="1f1b+")
            others.append(plus.schedule.makespan)
        except FailedPreconditionError:
            pass
        found.append(min(others) / ours if others else None)
    return found


def random_placement(seed: int) -> TaskPlacement:
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
    return TaskPlacement(
        name=f"random {seed}",
        num_devices=num_devices,
        tasks=tasks,
        dependencies=tuple(Dependency(before=i, after=i + 1) for i in range(len(tasks) - 1)),
        memory=float(most),
    )
