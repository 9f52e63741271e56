"""CP-SAT and Z3 at once on one placement: who reaches the lower bound first ends the race, else the best counts."""

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Event

from headway.core.schedule_search import Solver
from headway.planner.schedule.kernels import Found, Limits, search_kernel
from headway.planner.schedule.paper import search_paper_kernel
from headway.planner.schedule.problem import Problem

Search = Callable[[Callable[[], bool]], Found]
_RACE_S = 60.0
"""Of a race at an effort of 1, where nobody reaches the lower bound."""
_POLL_S = 0.05


def solve_kernel(problem: Problem, limits: Limits, *, should_stop: Callable[[], bool] = lambda: False) -> Found:
    """Searches a repetend with one solver or with both.

    Raises:
        FailedPreconditionError: the memory admits none; or Z3 was wanted and is not installed.
    """

    def cp_sat(stop: Callable[[], bool]) -> Found:
        return search_kernel(problem, limits, should_stop=stop)

    def z3(stop: Callable[[], bool]) -> Found:
        return search_paper_kernel(problem, limits, should_stop=stop)

    if limits.solver is Solver.CP_SAT:
        return cp_sat(should_stop)
    limit_s = _RACE_S * limits.effort
    return race([z3] if limits.solver is Solver.Z3 else [cp_sat, z3], limit_s=limit_s, should_stop=should_stop)


def race(searches: list[Search], *, limit_s: float, should_stop: Callable[[], bool]) -> Found:
    """Runs all at once, and takes the best; the first search's error where none finds anything."""
    ended, until_s = Event(), time.monotonic() + limit_s

    def stop() -> bool:
        return ended.is_set() or time.monotonic() > until_s or should_stop()

    with ThreadPoolExecutor(len(searches)) as pool:
        running = [pool.submit(search, stop) for search in searches]
        left: set[Future[Found]] = set(running)
        while left:
            done, left = wait(left, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            if any(each.exception() is None and each.result().is_optimal for each in done):
                ended.set()
    found = [each.result() for each in running if each.exception() is None]
    if not found:
        raise next(error for each in running if (error := each.exception()) is not None)
    return _best(found)


def _best(found: list[Found]) -> Found:
    """The shortest period, then the fewest micro-batches, with what any of the searches proved."""
    best = min(found, key=lambda each: (each.kernel.period, each.kernel.num_micro_batches))
    return Found(
        kernel=best.kernel,
        bound=max(each.bound for each in found),
        is_smallest=any(
            each.is_smallest
            and each.kernel.period == best.kernel.period
            and each.kernel.num_micro_batches == best.kernel.num_micro_batches
            for each in found
        ),
    )
