"""Climbers on this machine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import TimeoutError as StillRunningError
from multiprocessing import get_context
from multiprocessing.pool import Pool

from headway.planner.placement.search.parallel import Climb, climb_once
from headway.planner.placement.search.problem import Groups, Problem

_LOOK_EVERY_S = 0.2


class ProcessClimbers:
    """Implements `headway.planner.placement.search.parallel.Climbers`."""

    def __init__(self, pool: Pool, *, size: int) -> None:
        self.size = size
        self._pool = pool

    def run(self, problem: Problem, climbs: Sequence[Climb], should_stop: Callable[[], bool]) -> list[Groups] | None:
        running = self._pool.starmap_async(climb_once, [(problem, climb) for climb in climbs], chunksize=1)
        while not should_stop():
            try:
                return running.get(_LOOK_EVERY_S)
            except StillRunningError:
                continue
        return None


@contextmanager
def process_climbers(size: int) -> Iterator[ProcessClimbers]:
    """So many processes, which end with the block. They are started anew, as a service that forks isn't safe; each
    takes seconds to start."""
    with get_context("spawn").Pool(size) as pool:
        yield ProcessClimbers(pool, size=size)
