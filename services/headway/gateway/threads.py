"""Work that would hold up the event loop, done beside it: streams go on meanwhile."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from headway.core.fair_share import FairShare

R = TypeVar("R")

_NUM_THREADS = 3
_MOST_OF_ONE = 2


class Threads:
    """A few threads of one gateway, for what takes more than about a millisecond: the texts of a large body take
    seconds.

    One tenant never has all of them. Of the tenants that wait, the one that has had them for the shortest time is next.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="encode")
        self._fair_share = FairShare()
        self._num_busy: Counter[str] = Counter()  # threads, by tenant
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def run(self, work: Callable[[], R], *, is_long: bool, tenant: str = "") -> R:
        """Returns or raises what `work` does. Short work is done at once: a thread costs more than it saves."""
        if not is_long:
            return work()
        await self._turn(tenant)
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        def end(_: Future[R]) -> None:
            with suppress(RuntimeError):  # the loop has closed: the process is ending
                loop.call_soon_threadsafe(lambda: self._give_back(tenant, loop.time() - began_s))

        future = self._pool.submit(work)
        future.add_done_callback(end)
        return await asyncio.wrap_future(future)

    async def _turn(self, tenant: str) -> None:
        """Returns with a thread for the tenant."""
        self._fair_share.enter(tenant)
        place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(place)
        self._give()
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._fair_share.leave(tenant)
            else:
                self._give_back(tenant, 0.0)
            raise

    def _give_back(self, tenant: str, duration_s: float) -> None:
        self._fair_share.charge(tenant, duration_s)
        self._fair_share.leave(tenant)
        self._num_busy[tenant] -= 1
        self._give()

    def _give(self) -> None:
        """Gives free threads to those that wait."""
        while self._num_busy.total() < _NUM_THREADS:
            allowed = [tenant for tenant in self._waiting if self._num_busy[tenant] < _MOST_OF_ONE]
            if not allowed:
                return
            tenant = min(allowed, key=self._time)
            place = self._waiting[tenant].popleft()
            if not self._waiting[tenant]:
                del self._waiting[tenant]
            if not place.done():  # its client has not left meanwhile
                self._num_busy[tenant] += 1
                place.set_result(None)

    def _time(self, tenant: str) -> float:
        """Of one of whom all have left meanwhile there is none."""
        return self._fair_share.time(tenant) if self._fair_share.num_requests(tenant) else 0.0
