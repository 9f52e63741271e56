"""Checks the schedule that a training plan names: that its orders are whole and end, in the time and with the
micro-batches in flight that the plan says."""

import math
from collections import Counter
from collections.abc import Iterator

from headway.core.plan.training import PlannedSchedule, TrainingPlan, TrainingStage

_ROUNDING = 1e-6
_KINDS = ({"F", "B"}, {"F", "I", "W"})

Passes = list[tuple[str, int]]


def task_order_violations(plan: TrainingPlan) -> Iterator[str]:
    """For plans whose stages wait for later ones only; none of a plan that names no schedule."""
    schedule = plan.schedule
    if schedule is None:
        return
    if len(schedule.orders) != len(plan.stages):
        yield f"Schedule {schedule.name} has the orders of {len(schedule.orders)} of {len(plan.stages)} stages."
        return
    orders = [_passes(order) for order in schedule.orders]
    if faults := [f for number, order in enumerate(orders) for f in _order_faults(plan, number, order)]:
        yield from faults
        return
    replay = _Replay(plan, orders)
    if stuck := list(replay.stuck()):
        yield from stuck
        return
    yield from _time_faults(plan, schedule, replay.end_s)


def own_size_violations(plan: TrainingPlan) -> Iterator[str]:
    """For plans that name no schedule: that stages with micro-batches of different sizes do not wait for ever under
    1F1B with those in flight."""
    if not plan.has_own_sizes or plan.schedule is not None:
        return
    wrong = [f"Stage {i}: {each.in_flight} micro-batches are in flight." for i, each in enumerate(plan.stages)]
    if least := [fault for fault, stage in zip(wrong, plan.stages, strict=True) if stage.in_flight < 1]:
        yield from least
        return
    yield from _Replay(plan, [_one_by_one(plan.num_passes(stage), stage.in_flight) for stage in plan.stages]).stuck()


def _one_by_one(number: int, in_flight: int) -> Passes:
    """So many forward passes, then a backward and a forward one in turn."""
    order = [("F", n) for n in range(min(in_flight, number))]
    for n in range(number):
        order.append(("B", n))
        if n + in_flight < number:
            order.append(("F", n + in_flight))
    return order


def _passes(order: str) -> Passes:
    return [(each[:1], int(each[1:]) if each[1:].isdecimal() else -1) for each in order.split()]


def _order_faults(plan: TrainingPlan, number: int, order: Passes) -> Iterator[str]:
    """Each task of each micro-batch once, and as many micro-batches in flight as the stage says."""
    kinds = {kind for kind, _ in order}
    if kinds not in _KINDS:
        yield f"Stage {number}: the schedule has {', '.join(sorted(kinds)) or 'nothing'}, not F and B or F, I and W."
        return
    wanted = Counter((kind, n) for kind in kinds for n in range(plan.num_passes(plan.stages[number])))
    if Counter(order) != wanted:
        kind, n = min((wanted - Counter(order)) or (Counter(order) - wanted))
        yield f"Stage {number}: {kind}{n} is missing from the schedule, or too much."
        return
    held = most = 0
    for kind, _ in order:
        held += {"F": 1, "I": 0}.get(kind, -1)
        most = max(most, held)
    if most != plan.stages[number].in_flight:
        said = plan.stages[number].in_flight
        yield f"Stage {number}: {said} micro-batches are in flight, and the schedule has {most}."


class _Replay:
    """Runs all orders at once, each task as early as it can."""

    def __init__(self, plan: TrainingPlan, orders: list[Passes]) -> None:
        self._plan, self._orders = plan, orders
        self._before = [[i for i, later in enumerate(plan.successors) if s in later] for s in range(len(orders))]
        self._ends: dict[tuple[int, str, int], float] = {}
        self._place, self._free_s = [0] * len(orders), [0.0] * len(orders)

    @property
    def end_s(self) -> float:
        return max(self._free_s)

    def stuck(self) -> Iterator[str]:
        """The stages that do not come to their end."""
        numbers = range(len(self._orders))
        while sum(self._advance(number) for number in numbers):
            pass
        for number in numbers:
            if self._place[number] < len(self._orders[number]):
                kind, n = self._orders[number][self._place[number]]
                yield f"Stage {number} waits for ever at {kind}{n} of the schedule."

    def _advance(self, number: int) -> int:
        """How many tasks a stage ran."""
        began = self._place[number]
        order, stage = self._orders[number], self._plan.stages[number]
        while self._place[number] < len(order):
            kind, n = order[self._place[number]]
            ready_s = self._ready_s(number, kind, n)
            if ready_s is None:
                break
            self._free_s[number] = max(self._free_s[number], ready_s) + _task_s(stage, kind)
            self._ends[number, "B" if kind == "I" else kind, n] = self._free_s[number]
            self._place[number] += 1
        return self._place[number] - began

    def _ready_s(self, number: int, kind: str, n: int) -> float | None:
        """When all that a task needs is there; None where something has not run."""
        stages = self._plan.stages
        if kind == "W":
            return self._ends.get((number, "B", n))
        needs = [(other, "F", stages[other].handover_s / 2) for other in self._before[number]] if kind == "F" else []
        if kind in ("B", "I"):
            needs = [(other, "B", stages[number].handover_s / 2) for other in self._plan.successors[number]]
            needs.append((number, "F", 0.0))
        runs = [((other, what, m), lag_s) for other, what, lag_s in needs for m in self._same(number, n, other)]
        if any(run not in self._ends for run, _ in runs):
            return None
        return max((self._ends[run] + lag_s for run, lag_s in runs), default=0.0)

    def _same(self, number: int, n: int, other: int) -> range:
        """The micro-batches of another stage with the examples of one of a stage's."""
        own, theirs = (self._plan.micro_batch_of(self._plan.stages[each]) for each in (number, other))
        return range(n * own // theirs, ((n + 1) * own - 1) // theirs + 1)


def _task_s(stage: TrainingStage, kind: str) -> float:
    whole_s = {"F": stage.forward_s, "B": stage.backward_s, "W": stage.weight_gradients_s}
    return whole_s.get(kind, stage.backward_s - stage.weight_gradients_s)


def _time_faults(plan: TrainingPlan, schedule: PlannedSchedule, end_s: float) -> Iterator[str]:
    for field, found_s in (("makespan_s", end_s), ("iteration_s", end_s + plan.once_s)):
        said_s = getattr(schedule, field)
        if not math.isclose(said_s, found_s, rel_tol=_ROUNDING):
            yield f"Schedule {schedule.name} says {field} {said_s:.6g} s, and it is {found_s:.6g} s."
    busiest_s = max(
        (stage.forward_s + stage.backward_s) * plan.micro_batch / plan.micro_batch_of(stage) for stage in plan.stages
    )
    bubble = 1 - busiest_s * plan.num_micro_batches / end_s
    if not math.isclose(schedule.bubble, bubble, abs_tol=_ROUNDING):
        yield f"Schedule {schedule.name} says a bubble of {schedule.bubble:.6g}, and it is {bubble:.6g}."
    if not (math.isfinite(schedule.period_s) and schedule.period_s >= busiest_s * (1 - _ROUNDING)):
        yield f"Schedule {schedule.name} says a period of {schedule.period_s:.6g} s, below the busiest stage's work."
