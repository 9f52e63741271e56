"""Reports: what was found, priced."""

from headway.core.schedule import Repetend, Run, Schedule
from headway.core.schedule_file import placement_document
from headway.core.schedule_search import ComparedSchedule, ScheduleReport
from headway.planner.schedule.advice import advice_for
from headway.planner.schedule.communication import device_programs, program_lines
from headway.planner.schedule.search import Searched
from headway.planner.schedule.timing import critical_path

_TOLERANCE = 1e-9


def make_report(
    searched: Searched, *, period: float, violations: tuple[str, ...], compared: tuple[ComparedSchedule, ...] = ()
) -> ScheduleReport:
    """Prices a schedule.

    Args:
        period: of its swing.
    """
    schedule, repetend = searched.schedule, searched.repetend
    placement, makespan, path = schedule.placement, schedule.makespan, critical_path(schedule)
    place = {run: number for number, run in enumerate(schedule.runs)}
    bound = min(searched.bound, makespan)
    return ScheduleReport(
        placement=placement_document(placement),
        num_micro_batches=schedule.num_micro_batches,
        method=schedule.method,
        tasks=tuple(run.task for run in schedule.runs),
        micro_batches=tuple(run.micro_batch for run in schedule.runs),
        starts=tuple(run.start for run in schedule.runs),
        repetend=repetend,
        period=period,
        lower_bound=placement.lower_bound,
        bubble_rate=max(0.0, 1 - placement.lower_bound / period),
        bubble_of_makespan=schedule.bubble_of_makespan,
        bubble_of_span=schedule.bubble_of_span,
        repetend_micro_batches=0 if repetend is None else repetend.num_micro_batches,
        makespan=makespan,
        makespan_bound=bound,
        gap=makespan / bound - 1,
        peak_memory=schedule.peak_memory,
        is_optimal=repetend is not None and repetend.is_optimal,
        is_makespan_optimal=makespan <= bound * (1 + _TOLERANCE),
        is_smallest=repetend is not None and repetend.is_smallest,
        rounding_error=searched.problem.rounding_error,
        violations=violations,
        warmup=tuple(place[run] for run in schedule.runs if _phase(run, repetend, schedule) < 0),
        cooldown=tuple(place[run] for run in schedule.runs if _phase(run, repetend, schedule) > 0),
        programs=tuple(program_lines(placement, program) for program in device_programs(schedule)),
        critical_path=tuple(place[run] for run in path),
        advice=advice_for(schedule, path, bound),
        compared=compared,
    )


def _phase(run: Run, repetend: Repetend | None, schedule: Schedule) -> int:
    """-1 before the first repetition, by equation (5), 1 after the last, by equation (6), else 0."""
    if repetend is None or schedule.num_micro_batches < repetend.num_micro_batches:
        return 0
    index, last = repetend.indices[run.task], schedule.num_micro_batches - repetend.num_micro_batches
    return -1 if run.micro_batch < index else int(run.micro_batch > index + last)


def steady_period(longer: Schedule, shorter: Schedule) -> float:
    """The time for one more micro-batch, of a schedule without a repetend."""
    more = longer.num_micro_batches - shorter.num_micro_batches
    return (longer.makespan - shorter.makespan) / more


def middle_period(schedule: Schedule) -> float:
    """The mean time between the ends of micro-batches in the middle half of a schedule."""
    ends = [0.0] * schedule.num_micro_batches
    for each in schedule.runs:
        ends[each.micro_batch] = max(ends[each.micro_batch], schedule.end(each))
    first, last = schedule.num_micro_batches // 4, 3 * schedule.num_micro_batches // 4
    if last <= first:
        return schedule.makespan / schedule.num_micro_batches
    return max((ends[last] - ends[first]) / (last - first), schedule.placement.lower_bound)
