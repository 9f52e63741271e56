"""Ending tasks for sure, and letting them end."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any, TypeVar

R = TypeVar("R")

_AGAIN_AFTER_S = 0.02


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancels tasks and returns when all of them have ended, however they did.

    One cancellation may not do: before Python 3.12 `asyncio.wait_for`, through which redis-py sends its commands,
    swallows it where it comes together with the awaited result.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_AGAIN_AFTER_S)


def tell_failure(task: asyncio.Task[Any], tell: Callable[[BaseException], None]) -> None:
    """Hands on what a task fails with, as soon as it does: one that nobody awaits would fail in silence."""

    def on_ended(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            tell(error)

    task.add_done_callback(on_ended)


async def finished(task: asyncio.Task[R]) -> R:
    """Waits until a task has ended, for cleaning up that nothing may cut short: who waits is cancelled after it."""
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError
    return task.result()
