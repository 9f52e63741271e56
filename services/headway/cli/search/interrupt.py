"""Ctrl-C once ends a search with the best so far; twice gives it up."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

_SAID = "Ending the search with the best so far; Ctrl-C again gives it up."


@contextmanager
def interruptible(console: Console, said: str = _SAID) -> Iterator[asyncio.Event]:
    """Yields an event that the first SIGINT or SIGTERM sets; a second one cancels the task that is in the block.

    Args:
        said: at the first one.
    """
    stop, task, loop = asyncio.Event(), asyncio.current_task(), asyncio.get_running_loop()

    def interrupt() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        elif not stop.is_set():
            stop.set()
            console.print(said, highlight=False)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
