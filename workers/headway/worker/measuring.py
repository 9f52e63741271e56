"""Timing programs and hardware beside the model that the worker serves, while nobody asks it anything."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from headway.core.cluster import Hardware
from headway.core.codec import from_document, to_document
from headway.core.errors import FailedPreconditionError
from headway.core.hardware.calibration import CalibrationAnswer, CalibrationRequest, RankPlace
from headway.core.hardware.cell import Cell
from headway.core.program import Program
from headway.core.timing import Timing, TimingOrder
from headway.rpc.child import call_child
from headway.rpc.tasks import end_tasks

BENCH_MODULE = "headway.worker.bench"
CALIBRATION_MODULE = "headway.worker.calibration"
_START_S = 60.0
_PROGRAM_S = 60.0
_CELL_S = 60.0
_LOOK_EVERY_S = 0.02


class Measuring:
    """Runs timings while the worker is idle. They run in a process of their own, which is killed when a request comes,
    so no request waits for them.

    Args:
        host: where workers on other machines reach a process on this one.
        idle_s: seconds since the last request, 0 while there are any; None where no model is loaded.
        quiet_s: seconds without a request before a timing may start.
    """

    def __init__(
        self, hardware: Hardware, *, idle_s: Callable[[], float | None], quiet_s: float, host: str = "127.0.0.1"
    ) -> None:
        self._hardware = hardware
        self._host = host
        self._idle_s = idle_s
        self._quiet_s = quiet_s
        self._measuring = asyncio.Lock()

    async def measure(self, programs: Sequence[Program], *, share: float) -> AsyncGenerator[Timing, None]:
        """Yields a timing for each program, in order.

        Args:
            share: of the time that is spent measuring while a model is loaded.

        Raises:
            FailedPreconditionError: there are requests, or were a moment ago, or another caller measures.
            UnavailableError: the bench died.
            DeadlineExceededError: it was not done within a minute for each program.
        """
        order = TimingOrder(
            programs=tuple(programs),
            device=self._hardware.device,
            num_threads=self._hardware.num_threads,
            memory_bytes=self._hardware.memory_bytes,
            share=self._share(share),
        )
        deadline_s = (_START_S + _PROGRAM_S * len(programs)) / order.share
        async with aclosing(self._call(BENCH_MODULE, order, deadline_s=deadline_s)) as answers:
            async for answer in answers:
                yield from_document(Timing, answer)

    async def calibrate(
        self, cells: Sequence[Cell], *, share: float, place: RankPlace | None = None
    ) -> AsyncGenerator[CalibrationAnswer, None]:
        """Yields the machine, and a timing for each cell.

        Args:
            share: of the time that is spent measuring while a model is loaded.
            place: among ranks beside other workers, with which the cells, collectives, are timed. Rank 0 yields their
                rendezvous before the timings.

        Raises:
            FailedPreconditionError: there are requests, or were a moment ago, or another caller measures, or there is
                no hardware: it is emulated.
            UnavailableError: the timing process died, or another rank is gone.
            DeadlineExceededError: it was not done within a minute for each cell.
        """
        if self._hardware.is_emulated:
            raise FailedPreconditionError(
                f"{self._hardware.name} is emulated: there is nothing to measure.",
                hint="`headway profile catalogue` shows its figures.",
            )
        request = CalibrationRequest(
            device=self._hardware.device,
            num_threads=self._hardware.num_threads,
            cells=tuple(cells),
            share=self._share(share),
            place=place,
            host=self._host,
        )
        deadline_s = (_START_S + _CELL_S * len(cells)) / request.share
        async with aclosing(self._call(CALIBRATION_MODULE, request, deadline_s=deadline_s)) as answers:
            async for answer in answers:
                yield from_document(CalibrationAnswer, answer)

    def _share(self, share: float) -> float:
        return 1.0 if self._idle_s() is None else share

    async def _call(
        self, module: str, request: object, *, deadline_s: float
    ) -> AsyncGenerator[dict[str, object], None]:
        """The child's answers; FailedPreconditionError where the worker is busy, or becomes so."""
        if self._measuring.locked():
            raise FailedPreconditionError("The worker is being measured.", hint="Try again when that is done.")
        async with self._measuring:
            self._refuse_if_busy()
            document = await asyncio.to_thread(to_document, request)
            async with aclosing(call_child(module, document, deadline_s=deadline_s)) as answers:
                while (answer := await self._next(answers)) is not None:
                    yield answer

    async def _next(self, answers: AsyncGenerator[dict[str, object], None]) -> dict[str, object] | None:
        """FailedPreconditionError as soon as there are requests."""
        following = asyncio.ensure_future(anext(answers, None))
        busy = asyncio.ensure_future(self._until_busy())
        try:
            await asyncio.wait((following, busy), return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                self._refuse_if_busy()
            return await following
        finally:
            await end_tasks([following, busy])

    async def _until_busy(self) -> None:
        while not self._is_busy():  # noqa: ASYNC110 - an engine's sessions tell nobody
            await asyncio.sleep(_LOOK_EVERY_S)

    def _refuse_if_busy(self) -> None:
        if self._is_busy():
            raise FailedPreconditionError(
                f"The worker served requests within the last {self._quiet_s:.0f} s.", hint="Try again when it is idle."
            )

    def _is_busy(self) -> bool:
        idle_s = self._idle_s()
        return idle_s is not None and idle_s < self._quiet_s
