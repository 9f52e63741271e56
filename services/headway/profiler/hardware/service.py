"""Hardware profiles of the stack: made on its workers, listed and given out."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing

from headway.core.errors import FailedPreconditionError, NotFoundError
from headway.core.hardware.calibration import HardwareProgress, HardwareWanted
from headway.core.hardware.profile import HardwareProfile, HardwareSummary
from headway.core.timing import check_share
from headway.profiler.hardware.hardware import build_profile, profile_hardware
from headway.profiler.hardware.on_workers import WorkersCalibrator
from headway.profiler.jobs.bench_workers import BenchWorkers
from headway.profiler.machines import Machines
from headway.store.hardware import HardwareTimings

_AGAIN_AFTER_S = 1.0


class HardwareService:
    """Makes, lists and gives out hardware profiles. Every method raises UnavailableError while Redis is away."""

    def __init__(self, bench_workers: BenchWorkers, machines: Machines, timings: HardwareTimings) -> None:
        self._bench_workers = bench_workers
        self._machines = machines
        self._timings = timings
        self._measuring: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def profile(
        self, wanted: HardwareWanted, *, worker_id: str, share: float
    ) -> AsyncGenerator[HardwareProgress, None]:
        """Measures what is not known of the hardware that a worker has; an empty id is the newest worker.

        Raises:
            NotFoundError: there is no such worker.
            FailedPreconditionError: its hardware is emulated.
            InvalidArgumentError: there is no such family of cells, or the share is none.
            UnavailableError: there is no worker at all.
            InternalError: a cell was lost several times; what was timed is kept.
        """
        check_share(share)
        hardware = await self._bench_workers.hardware(worker_id)
        if hardware.is_emulated:
            raise FailedPreconditionError(
                f"{hardware.name} is emulated: there is nothing to measure.",
                hint="`headway profile catalogue` shows its figures.",
                field="worker_id",
            )
        calibrator = WorkersCalibrator(self._bench_workers, self._machines, hardware=hardware, share=share)
        lock = self._measuring[hardware.content_hash]
        if lock.locked():
            yield HardwareProgress(num_done=0, num_total=0, waits_for="waiting for another command that measures it")
        async with lock:
            while True:
                try:
                    async with aclosing(
                        profile_hardware(wanted, calibrator=calibrator, timings=self._timings)
                    ) as steps:
                        async for step in steps:
                            yield step
                except FailedPreconditionError as error:
                    if error.field:  # a stored timing that cannot be read: waiting does not help
                        raise
                    yield HardwareProgress(num_done=0, num_total=0, waits_for=error.message)
                else:
                    return
                await asyncio.sleep(_AGAIN_AFTER_S)

    async def list(self) -> list[HardwareSummary]:
        """Summaries of all hardware profiles, ordered by id."""
        running = [worker.hardware for worker in await self._bench_workers.workers()]
        machines = sorted(await self._timings.machines(), key=lambda machine: machine.profile_id)
        return [
            HardwareSummary(
                profile_id=machine.profile_id,
                machine=machine,
                num_timings=len(await self._timings.all(machine.profile_id)),
                is_stale=not any(machine.is_like(hardware) for hardware in running),
            )
            for machine in machines
        ]

    async def forget_stale(self) -> tuple[int, int]:
        """Removes what no running worker could have measured. Returns the numbers of profiles and of timings."""
        stale = [summary for summary in await self.list() if summary.is_stale]
        for summary in stale:
            await self._timings.forget(summary.profile_id)
        return len(stale), sum(summary.num_timings for summary in stale)

    async def get(self, profile_id: str) -> HardwareProfile:
        """The profile of that id; NotFoundError where there is none."""
        for machine in await self._timings.machines():
            if machine.profile_id == profile_id:
                return build_profile(machine, await self._timings.all(profile_id))
        raise NotFoundError(
            f"No hardware profile is called '{profile_id}'.",
            hint="`headway profile list` shows their ids.",
            field="profile_id",
        )
