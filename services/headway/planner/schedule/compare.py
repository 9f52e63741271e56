"""Published schedules beside the one that was found, each on the placement that it is for."""

from dataclasses import replace

from headway.core.errors import HeadwayError
from headway.core.pipeline_shapes import ShapeOptions, named_placement, with_lag
from headway.core.schedule import Schedule, TaskKind, TaskPlacement
from headway.core.schedule_search import PUBLISHED, ComparedSchedule, GivenSchedule, read_placement_document
from headway.core.stage_chain import stage_chain
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.predefined.methods import predefined
from headway.planner.schedule.report import middle_period, steady_period
from headway.planner.schedule.search import fits, search_schedule
from headway.planner.schedule.timing import Stuck, start_early


def compare_published(placement: TaskPlacement, num_micro_batches: int, limits: Limits) -> tuple[ComparedSchedule, ...]:
    """Prices all published schedules: on the placement itself, or where that is a V on another with as much work on
    each device. What fits nowhere says why."""
    return tuple(_compared(placement, num_micro_batches, method, limits) for method in PUBLISHED)


def compare_given(given: GivenSchedule, num_micro_batches: int) -> ComparedSchedule:
    """Prices a schedule of the user's."""
    placement = read_placement_document(given.placement)
    if given.num_micro_batches != num_micro_batches:
        why = f"It is for {given.num_micro_batches} micro-batches."
        return ComparedSchedule(method=placement.name, placement="given", why_not=why)
    orders = [[(each[0], each[1]) for each in order] for order in given.orders]
    made = start_early(placement, orders, num_micro_batches=num_micro_batches, method="given")
    if isinstance(made, Stuck):
        task, micro_batch = made.instance
        why = f"Rank {made.device} waits for ever at {placement.tasks[task].name} of micro-batch {micro_batch}."
        return ComparedSchedule(method=placement.name, placement="given", why_not=why)
    peak = max(made.peak_memory)
    if not fits(made):
        return ComparedSchedule(method=placement.name, placement="given", peak_memory=peak, why_not=_too_much(made))
    period = middle_period(made)
    return ComparedSchedule(
        method=placement.name, placement="given", makespan=made.makespan, period=period, peak_memory=peak
    )


def _too_much(made: Schedule) -> str:
    peaks = zip(made.peak_memory, made.placement.capacities or (), strict=True)
    device, (peak, capacity) = max(enumerate(peaks), key=lambda each: each[1][0] - each[1][1])
    return f"Device {device} holds {peak:g}, and has {capacity:g}."


def _compared(placement: TaskPlacement, num_micro_batches: int, method: str, limits: Limits) -> ComparedSchedule:
    on = _sibling(placement, method)
    try:
        if method in ("1f1b+", "chimera-direct"):
            found = search_schedule(on, num_micro_batches, limits, method=method)
            made, period = found.schedule, None if found.repetend is None else found.repetend.period
        else:
            made = predefined(method, on, num_micro_batches)
            more = num_micro_batches + 2 * placement.num_devices
            period = steady_period(predefined(method, on, more), made)
    except HeadwayError as error:
        return ComparedSchedule(method=method, placement=on.name, why_not=error.message)
    if not fits(made):
        peak = max(made.peak_memory)
        return ComparedSchedule(method=method, placement=on.name, peak_memory=peak, why_not=_too_much(made))
    return ComparedSchedule(
        method=method, placement=on.name, makespan=made.makespan, period=period, peak_memory=max(made.peak_memory)
    )


def _sibling(placement: TaskPlacement, method: str) -> TaskPlacement:
    """The placement that a method is for, where all stages of a V are alike; else the placement itself."""
    shape = {
        "interleaved-1f1b": "interleaved",
        "zb-v": "zigzag",
        "dualpipe-v": "zigzag",
        "v-half": "zigzag",
        "v-min": "zigzag",
    }.get(method)
    splits = method.startswith(("zb", "dualpipe", "v-"))
    try:
        stages = stage_chain(placement)
    except HeadwayError:
        return placement
    times = {task.kind: task.time for task in placement.tasks}
    is_even = all(task.time == times[task.kind] for task in placement.tasks)
    is_split = TaskKind.INPUT in times
    is_v = [stage.device for stage in stages] == [*range(placement.num_devices)]
    if not is_v or not is_even or (shape is None and splits == is_split) or len(times) < 2:
        return placement
    backward = times.get(TaskKind.BACKWARD, times.get(TaskKind.INPUT, 0.0) + times.get(TaskKind.WEIGHT, 0.0))
    share = 0.5 if shape else 1.0
    options = ShapeOptions(forward=share * times[TaskKind.FORWARD], backward=share * backward, splits_backward=splits)
    made = with_lag(
        named_placement(shape or "V", placement.num_devices, options),
        max((each.lag for each in placement.dependencies), default=0.0),
    )
    unit = max(abs(task.memory) for task in placement.tasks)
    tasks = tuple(replace(task, memory=task.memory * unit) for task in made.tasks)
    return replace(made, tasks=tasks, memory=placement.memory)
