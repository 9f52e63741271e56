"""Sends requests at their times, whatever the answers do: an open loop."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from benchmarks.serve.outcome import Outcome

Read = Callable[[], Outcome]
"""Makes of an answer that is over what became of its request."""

Send = Callable[[float], Coroutine[Any, Any, Read]]
"""Sends one prepared request at once; takes the run's start (of `time.perf_counter`) that its times count from.

Answers are read when all are over: meanwhile the cores are the server's.
"""


async def send_on_time(sends: Iterable[tuple[float, Send]]) -> tuple[Outcome, ...]:
    """Run every (arrival_s, send) at its time and wait for all; outcomes keep the order."""
    start_s = time.perf_counter()

    async def send_at(arrival_s: float, send: Send) -> Read:
        await asyncio.sleep(start_s + arrival_s - time.perf_counter())
        return await send(start_s)

    return tuple(read() for read in await asyncio.gather(*(send_at(arrival_s, send) for arrival_s, send in sends)))
