"""Runs one job from its work to its profile."""

import time
from collections.abc import Awaitable, Callable

from headway.core.catalogue import Catalogue
from headway.core.catalogue.figure import Provenance
from headway.core.errors import NotFoundError
from headway.core.measuring_job import MeasuringJob, MeasuringWork
from headway.core.model_profile import Cost, Measurement, ModelProfile, measurement_id
from headway.core.timing import Timing
from headway.profiler.jobs.bench_workers import BenchWorkers
from headway.profiler.jobs.estimate import estimate
from headway.profiler.jobs.spread import Spread
from headway.profiler.jobs.store import JobStore
from headway.profiler.machines import Machines

Report = Callable[[int, int, str], Awaitable[None]]
"""Is told how many programs are done, how many of these had been before, and what is waited for."""


class JobRun:
    """Measures what is not known yet, and stores each measurement at once: another run goes on from there."""

    def __init__(
        self,
        job: MeasuringJob,
        work: MeasuringWork,
        *,
        bench_workers: BenchWorkers,
        machines: Machines,
        store: JobStore,
        catalogue: Catalogue,
        report: Report,
    ) -> None:
        self._job = job
        self._work = work
        self._bench_workers = bench_workers
        self._machines = machines
        self._store = store
        self._estimates = _estimates(work, catalogue)
        self._report = report
        self._names = work.subject.program_names()
        self._known: dict[str, Measurement] = {}
        self._faults: dict[str, str] = {}

    async def run(self) -> ModelProfile:
        """Runs the job. UnavailableError where Redis is away; InternalError where a worker reports an impossible
        time."""
        self._known = await self._store.known(self._names, self._work.hardware)
        self._faults = {
            program: f"estimated to take more than {self._work.longest_s:g} s"
            for program, cost in self._estimates.items()
            if program in self._names and program not in self._known and cost.seconds > self._work.longest_s
        }
        await self._say("")
        spread = Spread(
            self._bench_workers,
            self._machines,
            hardware=self._work.hardware,
            share=self._work.share,
            names=self._names,
            keep=self._keep,
            say=self._say,
        )
        programs = {program.content_hash: program for program in self._work.programs}
        done = self._known.keys() | self._faults.keys()
        await spread.run([programs[name] for name in self._names if name not in done])
        return self._profile()

    @property
    def _num_cached(self) -> int:
        return sum(known.measured_at_s < self._job.created_at_s for known in self._known.values())

    async def _keep(self, program: str, timing: Timing) -> None:
        if timing.fault:
            self._faults[program] = timing.fault
        else:
            measurement = Measurement(
                measurement_id=measurement_id(program, self._work.hardware),
                name=self._names[program],
                hardware=self._work.hardware,
                seconds=timing.seconds,
                relative_error=timing.relative_error,
                num_repeats=timing.num_repeats,
                measured_at_s=time.time(),
                deviation=timing.deviation,
                least_s=timing.least_s,
                num_contended=timing.num_contended,
            )
            await self._store.measurements.put(measurement, measurement.measurement_id)
            self._known[program] = measurement
        await self._say("")

    async def _say(self, message: str) -> None:
        await self._report(len(self._known) + len(self._faults), self._num_cached, message)

    def _profile(self) -> ModelProfile:
        return ModelProfile(
            profile_id=self._job.profile_id,
            subject=self._work.subject,
            hardware=self._work.hardware,
            costs={program: self._cost(program) for program in self._names},
            num_measured=len(self._known) - self._num_cached,
            num_cached=self._num_cached,
            created_at_s=time.time(),
        )

    def _cost(self, program: str) -> Cost:
        if (known := self._known.get(program)) is not None:
            return Cost(
                seconds=known.seconds,
                provenance=Provenance.MEASURED,
                relative_error=known.relative_error,
                deviation=known.deviation,
                least_s=known.least_s,
                num_repeats=known.num_repeats,
                num_contended=known.num_contended,
            )
        note = self._faults[program]
        if (estimated := self._estimates.get(program)) is None:
            return Cost(note=note)
        return Cost(
            seconds=estimated.seconds,
            provenance=Provenance.ESTIMATED,
            relative_error=estimated.relative_error,
            note=note,
        )


def _estimates(work: MeasuringWork, catalogue: Catalogue) -> dict[str, Cost]:
    """Estimated costs by program; none where the catalogue lacks the hardware."""
    try:
        device = catalogue.device_of(work.hardware)
    except NotFoundError:
        return {}
    return estimate(work.subject, device, num_threads=work.hardware.num_threads)
