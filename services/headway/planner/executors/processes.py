"""Search executors on this machine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import TimeoutError as StillRunningError
from multiprocessing import get_context
from multiprocessing.pool import Pool

from headway.planner.placement.search.parallel import LocalSearch, search_once
from headway.planner.placement.search.problem import Groups, Problem

_LOOK_EVERY_S = 0.2


class ProcessSearchExecutor:
    """Runs local searches in processes; implements `headway.planner.placement.search.parallel.SearchExecutor`."""

    def __init__(self, pool: Pool, *, size: int) -> None:
        self.size = size
        self._pool = pool

    def run(
        self, problem: Problem, searches: Sequence[LocalSearch], should_stop: Callable[[], bool]
    ) -> list[Groups] | None:
        running = self._pool.starmap_async(
            search_once, [(problem, local_search) for local_search in searches], chunksize=1
        )
        while not should_stop():
            try:
                return running.get(_LOOK_EVERY_S)
            except StillRunningError:
                continue
        return None


@contextmanager
def process_executor(size: int) -> Iterator[ProcessSearchExecutor]:
    """So many processes, which end with the block. They are started anew, as a service that forks isn't safe; each
    takes seconds to start."""
    with get_context("spawn").Pool(size) as pool:
        yield ProcessSearchExecutor(pool, size=size)
