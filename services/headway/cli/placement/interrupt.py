"""Ctrl-C once ends a search with the best so far; twice gives it up."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console

R = TypeVar("R")


@contextmanager
def interruptible(console: Console) -> Iterator[asyncio.Event]:
    """Yields an event that the first SIGINT or SIGTERM sets; a second one cancels the task that is in the block."""
    stop, task, loop = asyncio.Event(), asyncio.current_task(), asyncio.get_running_loop()

    def interrupt() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        elif not stop.is_set():
            stop.set()
            console.print("Ending the search with the best so far; Ctrl-C again gives it up.", highlight=False)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def start_then_stop(start: R, stop_message: R, stop: asyncio.Event) -> AsyncIterator[R]:
    """Yields the message that starts a search, and once `stop` is set the one that stops it."""
    yield start
    await stop.wait()
    yield stop_message
