"""Work that would hold up the event loop, done beside it: streams go on meanwhile."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

R = TypeVar("R")

_NUM_THREADS = 2


class Threads:
    """A few threads of one gateway, for what takes more than about a millisecond."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="encode")

    async def run(self, work: Callable[[], R], *, is_long: bool) -> R:
        """Returns or raises what `work` does. Short work is done at once: a thread costs more than it saves."""
        if not is_long:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
