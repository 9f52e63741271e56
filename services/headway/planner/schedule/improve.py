"""Makes a schedule of the user's shorter within the memory: never longer than it was."""

from collections.abc import Callable

from headway.core.errors import HeadwayError
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.repetend import Effort
from headway.planner.schedule.search import Searched, fits, improve_whole, search_schedule


def improve_schedule(given: Searched, limits: Limits, *, should_stop: Callable[[], bool] = lambda: False) -> Searched:
    """Searches anew, and from the given schedule, and takes the shortest. One that does not fit the memory is replaced
    by any that does."""
    schedule, best = given.schedule, given if fits(given.schedule) else None
    try:
        anew = search_schedule(schedule.placement, schedule.num_micro_batches, limits, should_stop=should_stop)
        if best is None or anew.schedule.makespan < best.schedule.makespan * (1 - 1e-9):
            best = anew
    except HeadwayError:
        if best is None:
            raise
    better, whole = improve_whole(given.problem, best.schedule, Effort(units=limits.effort, seconds=20 * limits.effort))
    bound = max(best.bound, whole.bound * given.problem.tick / (1 + given.problem.rounding_error))
    repetend = best.repetend if better is best.schedule else None
    return Searched(schedule=better, repetend=repetend, bound=bound, problem=given.problem)
