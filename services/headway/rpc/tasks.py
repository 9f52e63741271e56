"""Ending tasks for sure."""

import asyncio
from collections.abc import Collection
from typing import Any

_AGAIN_AFTER_S = 0.5


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancels tasks and returns when all of them have ended, however they did.

    One cancellation may not do: before Python 3.12 `asyncio.wait_for`, through which redis-py sends its commands,
    swallows it where it comes together with the awaited result. The next one leaves a task time to clean up.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_AGAIN_AFTER_S)
