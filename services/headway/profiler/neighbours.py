"""Workers beside the one under measurement, which compute as well: as they do when all of them have requests."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from headway.core.errors import HeadwayError
from headway.profiler.grid import Point, WorkerLimits, fits
from headway.profiler.machines import machine_of
from headway.profiler.measure import Bench
from headway.profiler.worker import dial_worker
from headway.rpc.peers import Peers
from headway.rpc.tasks import end_tasks

_REFUSAL_S = 0.005
"""By then a worker that has requests has refused to be measured, and its neighbours are left alone."""


class Neighbour:
    """A worker that leads another group of the machine, with a model of its own."""

    def __init__(self, bench: Bench, limits: WorkerLimits) -> None:
        self._bench = bench
        self._limits = limits

    async def compute(self, point: Point) -> None:
        """The same step, if its model can; not where it computes for requests anyway, or is lost."""
        if fits(point, self._limits):
            try:
                await self._bench.measure(point)
            except HeadwayError:
                return


class AccompaniedBench:
    """A bench whose neighbours compute each step at the same time."""

    def __init__(self, bench: Bench, neighbours: Sequence[Neighbour]) -> None:
        self._bench = bench
        self._neighbours = neighbours

    async def measure(self, point: Point) -> float:
        """See `Bench`."""
        own = asyncio.ensure_future(self._bench.measure(point))
        try:
            await asyncio.wait((own,), timeout=_REFUSAL_S)
            if not own.done():
                await asyncio.gather(*(neighbour.compute(point) for neighbour in self._neighbours))
            return await own
        finally:
            await end_tasks([own])


@asynccontextmanager
async def dial_neighbours(peers: Peers, worker_id: str) -> AsyncIterator[list[Neighbour]]:
    """Those of a worker that answer now; of several models that they have the first. UnavailableError where Redis is
    away."""
    await peers.refresh()
    members = {member.member_id: member for member in peers.members("worker")}
    own = members.get(worker_id)
    async with AsyncExitStack() as stack:
        neighbours = []
        for member in members.values():
            is_near = own is not None and machine_of(member.endpoint) == machine_of(own.endpoint)
            if not is_near or not member.models or not member.is_leader or member.member_id == worker_id:
                continue
            try:
                worker = await stack.enter_async_context(dial_worker(peers, member.member_id, model=member.models[0]))
                neighbours.append(Neighbour(worker, await worker.limits()))
            except HeadwayError:
                continue
        yield neighbours
