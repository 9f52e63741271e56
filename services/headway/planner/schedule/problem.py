"""A placement in whole numbers, as solvers want it, and what rounding costs."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, gcd, lcm

from headway.core.schedule import TaskPlacement
from headway.planner.schedule.timing import task_order

_TICKS = 100_000
"""Of the lower bound, where times are no small whole multiples of one unit."""
_MEMORY_UNITS = 1_000_000_000
_MOST_DENOMINATOR = 1000


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The tasks of a placement in ticks.

    Attributes:
        tick: time of one tick, in the placement's unit.
        times: of tasks, rounded up, so that a schedule in ticks holds for the real times.
        edges: (before, after, lag) of each dependency, lags rounded up.
        memory: of tasks; the unit is `memory_unit`.
        capacities: of each device; None for as much as wanted.
    """

    placement: TaskPlacement
    tick: float
    times: tuple[int, ...]
    edges: tuple[tuple[int, int, int], ...]
    memory_unit: float
    memory: tuple[int, ...]
    capacities: tuple[int, ...] | None

    @property
    def num_tasks(self) -> int:
        return len(self.times)

    @property
    def on(self) -> tuple[tuple[int, ...], ...]:
        """The tasks of each device."""
        return self.placement.tasks_by_device

    @cached_property
    def loads(self) -> tuple[int, ...]:
        return tuple(sum(self.times[i] for i in on) for on in self.on)

    @property
    def lower_bound(self) -> int:
        """Of the period, in ticks."""
        return max(self.loads)

    @property
    def rounding_error(self) -> float:
        """The relative error of the lower bound by rounding times up."""
        return self.lower_bound * self.tick / self.placement.lower_bound - 1

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The tasks, each after all that it needs."""
        return task_order(self.placement)

    @cached_property
    def heads(self) -> tuple[int, ...]:
        """The earliest start of each task in its micro-batch."""
        found = [0] * self.num_tasks
        for i in self.order:
            for before, after, lag in self.edges:
                if before == i:
                    found[after] = max(found[after], found[i] + self.times[i] + lag)
        return tuple(found)

    @cached_property
    def tails(self) -> tuple[int, ...]:
        """What comes at least after the end of each task in its micro-batch."""
        found = [0] * self.num_tasks
        for i in reversed(self.order):
            for before, after, lag in self.edges:
                if before == i:
                    found[i] = max(found[i], lag + self.times[after] + found[after])
        return tuple(found)


def make_problem(placement: TaskPlacement) -> Problem:
    """Scales a placement: exactly where all times are multiples of one unit, else to a hundred-thousandth of the
    lower bound."""
    times = [task.time for task in placement.tasks]
    tick = _tick([*times, *(each.lag for each in placement.dependencies if each.lag)], placement.lower_bound)
    memory = [task.memory for task in placement.tasks]
    unit = 1.0 if all(float(each).is_integer() for each in memory) else _memory_unit(memory)
    return Problem(
        placement=placement,
        tick=tick,
        times=tuple(max(1, _ticks(time, tick)) for time in times),
        edges=tuple((each.before, each.after, _ticks(each.lag, tick)) for each in placement.dependencies),
        memory_unit=unit,
        memory=tuple(round(each / unit) for each in memory),
        capacities=None
        if placement.capacities is None
        else tuple(int(each / unit * (1 + 1e-9)) for each in placement.capacities),
    )


def _ticks(time: float, tick: float) -> int:
    return ceil(time / tick - 1e-6)


def _tick(times: list[float], lower_bound: float) -> float:
    """The greatest time of which all are multiples, where the lower bound is not too many of it."""
    parts = [Fraction(time).limit_denominator(_MOST_DENOMINATOR) for time in times]
    if all(abs(float(part) - time) <= 1e-12 * time for part, time in zip(parts, times, strict=True)):
        common = lcm(*(part.denominator for part in parts))
        greatest = Fraction(gcd(*(int(part * common) for part in parts)), common)
        if lower_bound / greatest <= _TICKS:
            return float(greatest)
    return lower_bound / _TICKS


def _memory_unit(memory: list[float]) -> float:
    parts = [Fraction(each).limit_denominator(_MOST_DENOMINATOR) for each in memory]
    if all(abs(float(part) - each) <= 1e-12 * abs(each) for part, each in zip(parts, memory, strict=True)):
        return 1 / lcm(*(part.denominator for part in parts))
    return max(map(abs, memory)) / _MEMORY_UNITS
