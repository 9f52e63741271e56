"""The schedule of a training plan: its stages' tasks in the order that a schedule family gives them, simulated."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headway.core.errors import FailedPreconditionError, HeadwayError
from headway.core.plan.training import OtherSchedule, PlannedSchedule, TrainingPlan, TrainingStage
from headway.core.schedule import Schedule, TaskKind, TaskPlacement
from headway.core.stage_chain import stage_chain
from headway.core.training_placement import stage_tasks, training_placement
from headway.core.training_search import SCHEDULES
from headway.core.units import format_bytes
from headway.planner.schedule.halves import halved
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.predefined.methods import predefined
from headway.planner.schedule.predefined.orders import graph_1f1b
from headway.planner.schedule.report import middle_period
from headway.planner.schedule.search import fits, search_schedule

AUTO, TESSEL, INTERLEAVED = "auto", "tessel", "interleaved-1f1b"
_SPLIT = ("zb-h1", "zb-h2")
_SAME = 5e-4
"""Shares of a pipeline's time that are not told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A schedule of the plan's stages.

    Attributes:
        schedule: None where there is none.
        period: for one more micro-batch, in seconds.
        why_not: why there is none, or why the plan cannot have it.
    """

    name: str
    schedule: Schedule | None = None
    period: float = 0.0
    why_not: str = ""

    @property
    def is_possible(self) -> bool:
        return self.schedule is not None and not self.why_not

    @property
    def makespan_s(self) -> float:
        return float("inf") if self.schedule is None else self.schedule.makespan


def schedule_plan(
    plan: TrainingPlan,
    name: str,
    *,
    explains: bool = False,
    limits: Limits,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainingPlan:
    """Gives a plan its schedule, and simulates it. Slices of tokens have one order, equation 2.5's, and no schedule.

    Args:
        name: one of `SCHEDULES`, the first one where the user chose none; 'auto' takes the fastest that fits.
        explains: whether all others are tried too, as 'auto' does.

    Raises:
        FailedPreconditionError: the plan cannot have this schedule; says why.
    """
    if plan.slices and name in (SCHEDULES[0], AUTO):
        return plan
    names = (*SCHEDULES[:-1], INTERLEAVED) if explains or name == AUTO else (name,)
    tried = [try_schedule(plan, each, limits=limits, should_stop=should_stop) for each in names]
    possible = [each for each in tried if each.is_possible and name in (AUTO, each.name)]
    if not possible:
        wanted = next((each for each in tried if each.name == name), tried[0])
        raise FailedPreconditionError(
            f"The plan's stages cannot run as {wanted.name}: {wanted.why_not}",
            hint="`headway plan train --schedule auto` takes the fastest that they can.",
            field="schedule",
        )
    best = min(possible, key=lambda each: each.makespan_s)
    assert best.schedule is not None
    others = tuple(_other(plan, best, each) for each in tried if each is not best)
    return replace(plan, schedule=_planned(plan, best, others), stages=tuple(_held(plan, best.schedule)))


def try_schedule(
    plan: TrainingPlan, name: str, *, limits: Limits, should_stop: Callable[[], bool] = lambda: False
) -> Tried:
    """The plan's stages with one schedule; what it needs and does not find is in `why_not`."""
    try:
        made, period = _made(plan, name, limits, should_stop)
    except HeadwayError as error:
        return Tried(name=name, why_not=error.message)
    if not fits(made):
        return Tried(name=name, schedule=made, period=period, why_not=_too_much(made))
    if name == INTERLEAVED:
        why = "Each device would run two runs of layers, and the plan's devices have one each."
        return Tried(name=name, schedule=made, period=period, why_not=why)
    return Tried(name=name, schedule=made, period=period)


def _made(plan: TrainingPlan, name: str, limits: Limits, should_stop: Callable[[], bool]) -> tuple[Schedule, float]:
    count = plan.num_micro_batches
    if name == TESSEL:
        return min(_searched(plan, limits, should_stop), key=lambda each: each[0].makespan)
    placement = training_placement(plan, splits_backward=name in _SPLIT)
    if name == INTERLEAVED:
        placement = halved(placement)
    elif name == "1f1b" and not _is_chain(placement):
        made = graph_1f1b(placement, count, in_flight=[stage.in_flight for stage in plan.stages])
        return made, middle_period(made)
    # Rules that look at memory would wait for it for ever: what a schedule needs is compared with it afterwards.
    made = predefined(name, replace(placement, memory=None), count)
    return replace(made, placement=placement), middle_period(made)


def _searched(plan: TrainingPlan, limits: Limits, should_stop: Callable[[], bool]) -> Iterator[tuple[Schedule, float]]:
    """With whole backward passes, and with split ones where stages have something to split."""
    for splits in (False, True):
        try:
            placement = training_placement(plan, splits_backward=splits)
        except FailedPreconditionError:
            continue
        found = search_schedule(placement, plan.num_micro_batches, limits, should_stop=should_stop)
        assert found.repetend is not None
        yield found.schedule, found.repetend.period
        if should_stop():
            return


def _is_chain(placement: TaskPlacement) -> bool:
    try:
        stages = stage_chain(placement)
    except HeadwayError:
        return False
    return [stage.device for stage in stages] == [*range(placement.num_devices)]


def _too_much(schedule: Schedule) -> str:
    peaks = zip(schedule.peak_memory, schedule.placement.capacities or (), strict=True)
    stage, (peak, room) = max(enumerate(peaks), key=lambda each: each[1][0] - each[1][1])
    return (
        f"A device of stage {stage} would hold activations of {format_bytes(int(peak))}, "
        f"and has {format_bytes(int(room))} for them."
    )


def _planned(plan: TrainingPlan, tried: Tried, others: tuple[OtherSchedule, ...]) -> PlannedSchedule:
    schedule = tried.schedule
    assert schedule is not None
    return PlannedSchedule(
        name=tried.name,
        orders=tuple(map(" ".join, _orders(plan, schedule))),
        makespan_s=schedule.makespan,
        iteration_s=schedule.makespan + plan.once_s,
        period_s=tried.period,
        bubble=max(0.0, schedule.bubble_of_makespan),
        others=others,
    )


def _orders(plan: TrainingPlan, schedule: Schedule) -> Iterator[list[str]]:
    """Of each stage the passes of its own micro-batches, such as 'F0'."""
    splits = any(task.kind is TaskKind.INPUT for task in schedule.placement.tasks)
    tasks = stage_tasks(plan, splits_backward=splits)
    for stage, runs in zip(plan.stages, schedule.runs_by_device, strict=True):
        parts = plan.micro_batch // plan.micro_batch_of(stage)
        yield [f"{tasks[run.task].letter}{run.micro_batch * parts + tasks[run.task].part}" for run in runs]


def _held(plan: TrainingPlan, schedule: Schedule) -> Iterator[TrainingStage]:
    """The stages with as many micro-batches in flight as the schedule has, and the memory that these take."""
    tasks = schedule.placement.tasks
    for stage, runs in zip(plan.stages, schedule.runs_by_device, strict=True):
        held = most = 0
        for run in runs:
            name = tasks[run.task].name[0]
            held += (name == "F") - (name in "BW")
            most = max(most, held)
        activations_bytes = most * stage.memory.activations_bytes // max(stage.in_flight, 1)
        yield replace(stage, in_flight=most, memory=replace(stage.memory, activations_bytes=activations_bytes))


def _other(plan: TrainingPlan, best: Tried, other: Tried) -> OtherSchedule:
    if other.schedule is None:
        return OtherSchedule(name=other.name, why_not=other.why_not)
    ratio = other.makespan_s / best.makespan_s
    compared = f"{ratio - 1:.1%} longer" if ratio > 1 else f"{1 - ratio:.1%} less long"
    return OtherSchedule(
        name=other.name,
        iteration_s=other.makespan_s + plan.once_s,
        bubble=max(0.0, other.schedule.bubble_of_makespan),
        why_not=other.why_not or (f"It takes {compared}." if abs(ratio - 1) > _SAME else "It takes as long."),
    )
