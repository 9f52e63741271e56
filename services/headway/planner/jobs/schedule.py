"""The search for a pipeline schedule, as a job: documents of `ScheduleSearch` and `ScheduleReport`."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headway.core.codec import from_document, to_document
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.schedule import TaskPlacement
from headway.core.schedule_search import (
    ScheduleAction,
    ScheduleReport,
    ScheduleSearch,
    check_method,
    read_placement_document,
)
from headway.core.search_progress import SearchProgress
from headway.planner.certify.schedule import find_repetend_violations, find_schedule_violations
from headway.planner.certify.schedule_programs import find_program_violations
from headway.planner.schedule.bounds import makespan_bound
from headway.planner.schedule.communication import device_programs
from headway.planner.schedule.compare import compare_given, compare_published
from headway.planner.schedule.improve import improve_schedule
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.predefined.methods import predefined
from headway.planner.schedule.problem import make_problem
from headway.planner.schedule.report import make_report, middle_period, steady_period
from headway.planner.schedule.search import Searched, search_schedule
from headway.planner.schedule.timing import Stuck, start_early


def run(
    request: dict[str, Any],
    *,
    report: Callable[[SearchProgress], None],
    should_stop: Callable[[], bool],
    resume: dict[str, Any] | None,  # noqa: ARG001 - a search that is begun again is short
) -> dict[str, Any]:
    """Searches, compares, checks or improves a schedule, and certifies it; see `kinds.RunSearch`."""
    search = from_document(ScheduleSearch, request)
    check_method(search.method)
    placement = read_placement_document(search.placement)
    report(SearchProgress(phase=search.title))
    found: dict[str, Any] = to_document(answer(search, placement, should_stop))
    return found


def answer(search: ScheduleSearch, placement: TaskPlacement, should_stop: Callable[[], bool]) -> ScheduleReport:
    """Errors are those of `search_schedule`; of a user's orders InvalidArgumentError names device and step."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    limits = Limits(
        effort=search.effort, proves=search.proves, most_repetend=search.most_repetend, solver=search.solver
    )
    if search.action in (ScheduleAction.CHECK, ScheduleAction.IMPROVE):
        searched = _given(search, placement)
        if search.action is ScheduleAction.IMPROVE:
            searched = improve_schedule(searched, limits, should_stop=should_stop)
    else:
        searched = search_schedule(
            placement, search.num_micro_batches, limits, method=search.method, should_stop=should_stop
        )
    made = make_report(searched, period=_period(searched, search), violations=_violations(searched))
    took_s, took_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    if search.action is ScheduleAction.COMPARE:
        beside = tuple(compare_given(each, search.num_micro_batches) for each in search.beside)
        made = replace(made, compared=(*beside, *compare_published(placement, search.num_micro_batches, limits)))
    return replace(made, search_s=took_s, search_cpu_s=took_cpu_s)


def _violations(searched: Searched) -> tuple[str, ...]:
    schedule, repetend = searched.schedule, searched.repetend
    found = find_schedule_violations(schedule)
    found = found or find_program_violations(schedule, device_programs(schedule))
    if repetend is not None:
        found += find_repetend_violations(schedule.placement, repetend)
    return tuple(found)


def _given(search: ScheduleSearch, placement: TaskPlacement) -> Searched:
    orders = [[(each[0], each[1]) for each in order] for order in search.orders]
    if len(orders) != placement.num_devices:
        raise InvalidArgumentError("There is not one order for each device.", field="orders")
    made = start_early(placement, orders, num_micro_batches=search.num_micro_batches, method="given")
    if isinstance(made, Stuck):
        task, micro_batch = made.instance
        name = placement.tasks[task].name
        place = f"rank {made.device}, step {made.position}"
        if search.places:
            place = search.places[made.device][made.position]
        raise FailedPreconditionError(
            f"At {place} the schedule waits for ever: what {name} of micro-batch {micro_batch} needs comes later.",
            hint="Put it after what it needs, on this rank and on the others.",
        )
    problem = make_problem(placement)
    bound = makespan_bound(problem, search.num_micro_batches) * problem.tick / (1 + problem.rounding_error)
    return Searched(schedule=made, repetend=None, bound=bound, problem=problem)


def _period(searched: Searched, search: ScheduleSearch) -> float:
    """Of a repetend its own; of a published schedule by a longer one; else what the given one takes in its swing."""
    if searched.repetend is not None:
        return searched.repetend.period
    if searched.schedule.method == search.method and search.method not in ("tessel", "optimal"):
        count = search.num_micro_batches + 2 * searched.schedule.placement.num_devices
        longer = predefined(search.method, searched.schedule.placement, count)
        return max(steady_period(longer, searched.schedule), searched.schedule.placement.lower_bound)
    return middle_period(searched.schedule)
