"""Searches schedules: a repetend, its completion, and the better of that and what is published."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headway.core.errors import HeadwayError, InvalidArgumentError
from headway.core.schedule import Repetend, Run, Schedule, TaskPlacement
from headway.planner.schedule.bounds import check_memory, makespan_bound, whole_shop
from headway.planner.schedule.completion import complete, extend, truncated
from headway.planner.schedule.greedy import greedy_schedules
from headway.planner.schedule.kernels import Found, Limits, search_kernel
from headway.planner.schedule.predefined.methods import one_direction_units, predefined, predefined_methods
from headway.planner.schedule.problem import Problem, make_problem
from headway.planner.schedule.race import solve_kernel
from headway.planner.schedule.repetend import Effort
from headway.planner.schedule.shop import Shopped, solve_shop
from headway.planner.schedule.timing import compacted

_MOST_JOBS = 100
"""So many tasks of all micro-batches, a schedule is improved as a whole too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """Attributes:
    repetend: None for a schedule that has none.
    bound: of the makespan, in the placement's unit.
    """

    schedule: Schedule
    repetend: Repetend | None
    bound: float
    problem: Problem


def search_schedule(
    placement: TaskPlacement,
    num_micro_batches: int,
    limits: Limits,
    *,
    method: str = "tessel",
    should_stop: Callable[[], bool] = lambda: False,
) -> Searched:
    """Searches the schedule of a method.

    Raises:
        FailedPreconditionError: the memory admits none.
        InvalidArgumentError: the method is not for this placement.
    """
    problem = make_problem(placement)
    check_memory(problem, num_micro_batches)
    if method == "optimal":
        return search_optimal(problem, num_micro_batches, limits)
    bound = makespan_bound(problem, num_micro_batches) * problem.tick / (1 + problem.rounding_error)
    if method not in ("tessel", "1f1b+", "chimera-direct"):
        made = predefined(method, placement, num_micro_batches)
        if not fits(made):
            raise InvalidArgumentError(f"{method} does not fit the memory.", hint="Leave out --schedule to search.")
        return Searched(schedule=made, repetend=None, bound=bound, problem=problem)
    if method != "tessel":
        limits = replace(limits, most_repetend=one_direction_units(method, placement))
    found = solve_kernel(problem, limits, should_stop=should_stop)
    candidates = list(_completed(problem, found, num_micro_batches, limits))
    if method == "tessel":
        candidates += [*published(placement, num_micro_batches), *greedy_schedules(placement, num_micro_batches)]
        is_shortest = min(each.makespan for each in candidates) <= bound * (1 + 1e-9)
        if not (should_stop() or is_shortest or _is_settled(problem, found, num_micro_batches)):
            fewer = solve_kernel(problem, _fewer(placement, limits), should_stop=should_stop)
            candidates += _completed(problem, fewer, num_micro_batches, limits)
            if fewer.kernel.period < found.kernel.period:
                found = replace(found, kernel=fewer.kernel, is_smallest=False)
    best = min(candidates, key=lambda each: each.makespan)
    if method == "tessel" and problem.num_tasks * num_micro_batches <= _MOST_JOBS and not should_stop():
        best, whole = improve_whole(problem, best, Effort(units=0.05 * limits.effort))
        bound = max(bound, whole.bound * problem.tick / (1 + problem.rounding_error))
    return Searched(schedule=best, repetend=_repetend(problem, found), bound=bound, problem=problem)


def search_optimal(problem: Problem, num_micro_batches: int, limits: Limits) -> Searched:
    """TO: the whole schedule at once, by CP-SAT."""
    start = next(iter(sorted(published(problem.placement, num_micro_batches), key=lambda each: each.makespan)), None)
    if start is None:
        found = search_kernel(problem, limits)
        start = truncated(problem, found.kernel, num_micro_batches)
    best, whole = improve_whole(problem, start, Effort(units=100.0 * limits.effort))
    bound = whole.bound * problem.tick / (1 + problem.rounding_error)
    return Searched(schedule=best, repetend=None, bound=bound, problem=problem)


def improve_whole(problem: Problem, schedule: Schedule, effort: Effort) -> tuple[Schedule, Shopped]:
    """Makes a schedule shorter by searching all of it at once; never longer."""
    tick, starts = problem.tick, _whole_starts(problem, schedule)
    whole = solve_shop(whole_shop(problem, schedule.num_micro_batches), starts, effort=effort)
    better = compacted(
        Schedule(
            placement=schedule.placement,
            num_micro_batches=schedule.num_micro_batches,
            runs=tuple(sorted(Run(start=s * tick, task=i, micro_batch=n) for (i, n), s in whole.starts.items())),
            method=schedule.method,
        )
    )
    return (better if better.makespan < schedule.makespan * (1 - 1e-9) else schedule), whole


def published(placement: TaskPlacement, num_micro_batches: int) -> list[Schedule]:
    """What is published for this placement and fits the memory."""
    found = []
    for method in predefined_methods():
        try:
            made = predefined(method, placement, num_micro_batches)
        except HeadwayError:
            continue
        if fits(made):
            found.append(made)
    return found


def fits(schedule: Schedule) -> bool:
    """Whether the memory is enough."""
    capacities = schedule.placement.capacities
    return capacities is None or all(
        peak <= capacity * (1 + 1e-9) for peak, capacity in zip(schedule.peak_memory, capacities, strict=True)
    )


def _is_settled(problem: Problem, found: Found, num_micro_batches: int) -> bool:
    """Whether a repetend of as few micro-batches as 1F1B+'s is not worth a search: the shortest period needs more, and
    there are enough micro-batches for it to count more than what comes before and after."""
    needed = found.kernel.num_micro_batches
    return found.is_optimal and needed > len(problem.on) and num_micro_batches >= 2 * needed


def _fewer(placement: TaskPlacement, limits: Limits) -> Limits:
    """As many micro-batches as '1f1b+' has: that search is easier, and warm-up and cool-down are shorter."""
    most = one_direction_units("1f1b+", placement)
    return replace(limits, most_repetend=min(most, limits.most_repetend or most))


def _completed(problem: Problem, found: Found, num_micro_batches: int, limits: Limits) -> Iterator[Schedule]:
    yield truncated(problem, found.kernel, num_micro_batches)
    if num_micro_batches >= found.kernel.num_micro_batches:
        effort = Effort(units=0.0005 * problem.num_tasks**2 * limits.effort)
        yield extend(problem, complete(problem, found.kernel, effort=effort), num_micro_batches)


def _whole_starts(problem: Problem, schedule: Schedule) -> dict[tuple[int, int], int]:
    """The same orders in ticks, each start as early as they allow."""
    starts: dict[tuple[int, int], int] = {}
    free = [0] * len(problem.on)
    for run in sorted(schedule.runs):
        ready = [free[device] for device in problem.placement.tasks[run.task].devices]
        for before, after, lag in problem.edges:
            if after == run.task:
                ready.append(starts[before, run.micro_batch] + problem.times[before] + lag)
        starts[run.task, run.micro_batch] = max(ready)
        for device in problem.placement.tasks[run.task].devices:
            free[device] = max(ready) + problem.times[run.task]
    return starts


def _repetend(problem: Problem, found: Found) -> Repetend:
    kernel, exact = found.kernel, 1 + problem.rounding_error
    is_bound = kernel.period == problem.lower_bound
    return Repetend(
        period=kernel.period * problem.tick,
        indices=kernel.indices,
        starts=tuple(start * problem.tick for start in kernel.starts),
        is_optimal=found.is_optimal,
        bound=problem.placement.lower_bound if is_bound else found.bound * problem.tick / exact,
        is_smallest=found.is_smallest,
    )
