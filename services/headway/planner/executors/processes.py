"""Does parts of a search in processes of this machine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import TimeoutError as StillRunningError
from multiprocessing import get_context
from multiprocessing.pool import AsyncResult, Pool
from typing import TypeVar

_LOOK_EVERY_S = 0.2

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")


class ProcessExecutor:
    """Runs tasks in a pool of processes.

    Attributes:
        size: number of tasks at once.
    """

    def __init__(self, pool: Pool, *, size: int) -> None:
        self.size = size
        self._pool = pool

    def map(
        self, task: Callable[[S, I], R], shared: S, items: Sequence[I], should_stop: Callable[[], bool]
    ) -> Iterator[R]:
        """Begins all tasks, and yields what each gives, in order; ends early where it is stopped."""
        running = [self._pool.apply_async(task, (shared, item)) for item in items]
        return _results(running, should_stop)


def _results(running: Sequence[AsyncResult[R]], should_stop: Callable[[], bool]) -> Iterator[R]:
    for each in running:
        while True:
            if should_stop():
                return
            try:
                found = each.get(_LOOK_EVERY_S)
            except StillRunningError:
                continue
            yield found
            break


@contextmanager
def process_executor(size: int) -> Iterator[ProcessExecutor]:
    """Starts `size` processes, which end with the block. They are spawned, as a service that forks isn't safe; each
    takes seconds to start."""
    with get_context("spawn").Pool(size) as pool:
        yield ProcessExecutor(pool, size=size)
