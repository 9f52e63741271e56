"""Spreading programs over the workers of one kind of hardware until each has been timed."""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

from headway.core.cluster import Hardware
from headway.core.errors import DeadlineExceededError, FailedPreconditionError, InternalError, UnavailableError
from headway.core.program import Program
from headway.core.timing import Timing
from headway.profiler.jobs.bench_workers import BenchWorker
from headway.profiler.machines import Machines
from headway.rpc.tasks import end_tasks

_BATCH = 16
_MAX_ATTEMPTS = 3
_RETRY_S = 1.0
_LOOK_EVERY_S = 0.5


class Benches(Protocol):
    """The workers on which programs are timed; see `Fleet`."""

    async def workers(self) -> list[BenchWorker]: ...

    async def wait(self, timeout_s: float) -> None: ...

    def time(
        self, worker: BenchWorker, programs: Sequence[Program], *, share: float
    ) -> AsyncGenerator[Timing, None]: ...


class Spread:
    """Spreads a job's programs over machines: each takes a few at a time, on one of its workers. A lost worker costs
    what it was timing.

    Args:
        names: of the programs, for people, by content hash.
        keep: is told every timing as it comes, by the program's content hash.
        say: is told what is waited for; an empty text where nothing is.
    """

    def __init__(
        self,
        benches: Benches,
        machines: Machines,
        *,
        hardware: Hardware,
        share: float,
        names: Mapping[str, str],
        keep: Callable[[str, Timing], Awaitable[None]],
        say: Callable[[str], Awaitable[None]],
    ) -> None:
        self._benches = benches
        self._machines = machines
        self._hardware = hardware
        self._share = share
        self._names = names
        self._keep = keep
        self._say = say
        self._queue: deque[Program] = deque()
        self._attempts: Counter[str] = Counter()
        self._rests_until_s: dict[str, float] = {}
        self._waits_for = ""

    async def run(self, programs: Sequence[Program]) -> None:
        """Returns when all have been kept.

        Raises:
            InternalError: a worker reports a time that cannot be; names what was timed.
        """
        self._queue.extend(programs)
        lanes: dict[str, asyncio.Task[None]] = {}
        try:
            while self._queue or lanes:
                for worker in await self._idle_workers():
                    if self._queue and worker.machine not in lanes:
                        lanes[worker.machine] = asyncio.create_task(self._use(worker))
                if lanes:
                    await asyncio.wait(lanes.values(), timeout=_LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await self._say(self._waits_for or f"waiting for a worker on {self._hardware.name}")
                    await self._benches.wait(_LOOK_EVERY_S)
                for machine, lane in [(machine, lane) for machine, lane in lanes.items() if lane.done()]:
                    del lanes[machine]
                    lane.result()
        finally:
            await end_tasks(list(lanes.values()))

    async def _idle_workers(self) -> list[BenchWorker]:
        """Of the right hardware, who rested longest first."""
        now_s = time.monotonic()
        rested = [
            (self._rests_until_s.get(worker.worker_id, 0.0), worker)
            for worker in await self._benches.workers()
            if worker.hardware.content_hash == self._hardware.content_hash
        ]
        return [worker for until_s, worker in sorted(rested, key=lambda pair: pair[0]) if until_s <= now_s]

    async def _use(self, worker: BenchWorker) -> None:
        batch: deque[Program] = deque()
        try:
            async with self._machines.lock(worker.machine):
                while self._queue and len(batch) < _BATCH:
                    batch.append(self._queue.popleft())
                await self._time(worker, batch)
                self._waits_for = ""
        except FailedPreconditionError as error:
            self._waits_for = f"waiting for an idle worker: {error.message}"
        except (UnavailableError, DeadlineExceededError) as error:
            await self._give_up_on(batch, error)
        finally:
            self._queue.extendleft(reversed(batch))
            self._rests_until_s[worker.worker_id] = time.monotonic() + (_RETRY_S if batch else 0.0)

    async def _time(self, worker: BenchWorker, batch: deque[Program]) -> None:
        """Takes what is done from the batch."""
        async with aclosing(self._benches.time(worker, tuple(batch), share=self._share)) as timings:
            async for timing in timings:
                program = batch[0].content_hash
                if not timing.fault and not (math.isfinite(timing.seconds) and timing.seconds > 0):
                    raise InternalError(
                        f"{worker.worker_id} timed {self._names.get(program, program)} at {timing.seconds} s.",
                        hint="Restart that worker, and look at its clock.",
                    )
                await self._say("")
                await self._keep(program, timing)
                batch.popleft()

    async def _give_up_on(self, batch: deque[Program], error: Exception) -> None:
        """On what was being timed, where that was lost several times."""
        self._waits_for = f"waiting for a worker: {error}"
        if not batch:
            return
        program = batch[0].content_hash
        self._attempts[program] += 1
        if self._attempts[program] == _MAX_ATTEMPTS:
            fault = f"it was lost {_MAX_ATTEMPTS} times: {error}"
            await self._keep(program, Timing(number=0, fault=fault))
            batch.popleft()
