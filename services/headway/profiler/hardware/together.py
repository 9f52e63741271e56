"""Times collectives between ranks beside several workers, one each."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from headway.core.hardware.calibration import CalibrationAnswer, RankPlace
from headway.core.hardware.cell import Cell, CellTiming
from headway.profiler.jobs.bench_workers import BenchWorker, BenchWorkers
from headway.rpc.tasks import end_tasks


async def time_together(
    bench_workers: BenchWorkers, workers: Sequence[BenchWorker], cells: Sequence[Cell], *, share: float
) -> AsyncGenerator[CellTiming, None]:
    """Times cells on all workers. The first one's rank leads, and tells the others where to meet. It raises what
    `BenchWorkers.calibrate` does, of any worker."""
    others: list[asyncio.Task[None]] = []
    lead = bench_workers.calibrate(workers[0], cells, share=share, place=RankPlace(rank=0, num_ranks=len(workers)))
    try:
        async with aclosing(lead):
            while (answer := await _next(lead, others)) is not None:
                if answer.rendezvous:
                    for rank, worker in enumerate(workers[1:], start=1):
                        place = RankPlace(rank=rank, num_ranks=len(workers), rendezvous=answer.rendezvous)
                        others.append(asyncio.create_task(_follow(bench_workers, worker, cells, share, place)))
                elif answer.timing is not None:
                    yield answer.timing
        await asyncio.gather(*others)
    finally:
        await end_tasks(others)


async def _follow(
    bench_workers: BenchWorkers, worker: BenchWorker, cells: Sequence[Cell], share: float, place: RankPlace
) -> None:
    async with aclosing(bench_workers.calibrate(worker, cells, share=share, place=place)) as answers:
        async for _ in answers:
            pass


async def _next(
    lead: AsyncGenerator[CalibrationAnswer, None], others: Sequence[asyncio.Task[None]]
) -> CalibrationAnswer | None:
    """The leading rank's next answer, None at its end; raises the fault of another rank as soon as it has one."""
    following = asyncio.ensure_future(anext(lead, None))
    try:
        while not following.done():
            await asyncio.wait(
                (following, *(task for task in others if not task.done())), return_when=asyncio.FIRST_COMPLETED
            )
            for task in others:
                if task.done() and not following.done():
                    task.result()
        return await following
    finally:
        await end_tasks([following])
