"""Measuring jobs: started, watched, cancelled, and resumed after a restart."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from headway.core.catalogue import Catalogue
from headway.core.errors import HeadwayError, NotFoundError, UnavailableError
from headway.core.measuring_job import JobState, MeasuringJob, MeasuringWork
from headway.core.model_profile import ModelProfile, model_profile_id
from headway.core.profiling_units import ProfilingUnits
from headway.core.program import Program
from headway.profiler.jobs.bench_workers import BenchWorkers
from headway.profiler.jobs.run import JobRun
from headway.profiler.jobs.store import JobStore
from headway.profiler.machines import Machines
from headway.rpc.tasks import end_tasks

log = logging.getLogger(__name__)

_AGAIN_AFTER_S = 1.0


class MeasuringJobs:
    """Runs one job for each model and kind of hardware: a caller who asks for what is being measured joins."""

    def __init__(
        self, bench_workers: BenchWorkers, machines: Machines, store: JobStore, *, catalogue: Catalogue
    ) -> None:
        self._bench_workers = bench_workers
        self._machines = machines
        self._store = store
        self._catalogue = catalogue
        self._running: dict[str, MeasuringJob] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    async def resume(self) -> None:
        """Resumes the jobs that an earlier process left."""
        while True:
            try:
                for job in await self._store.jobs.all():
                    if job.state is JobState.RUNNING and job.job_id not in self._running:
                        await self._take_up(job)
            except UnavailableError as error:
                log.warning("jobs are not known: %s", error)
                await asyncio.sleep(_AGAIN_AFTER_S)
            else:
                return

    async def start(
        self, subject: ProfilingUnits, programs: Sequence[Program], *, worker_id: str, share: float, longest_s: float
    ) -> MeasuringJob:
        """Starts a job and returns when it is stored.

        Args:
            worker_id: whose kind of hardware to measure; empty for the newest worker's.

        Raises:
            NotFoundError: there is no such worker.
            UnavailableError: there is none at all.
            InvalidArgumentError: a program is missing, or a number cannot be.
        """
        hardware = await self._bench_workers.hardware(worker_id)
        work = MeasuringWork(
            subject=subject, programs=tuple(programs), hardware=hardware, share=share, longest_s=longest_s
        )
        profile_id = model_profile_id(subject, hardware)
        if profile_id in self._running:
            return self._running[profile_id]
        job = MeasuringJob(
            job_id=profile_id,
            model=subject.model,
            hardware=hardware.name,
            num_total=len(subject.program_names()),
            profile_id=profile_id,
            created_at_s=time.time(),
        )
        await self._store.works.put(work, job.job_id)
        await self._store.jobs.put(job, job.job_id)
        self._launch(job, work)
        return job

    async def watch(self, job_id: str) -> AsyncGenerator[tuple[MeasuringJob, ModelProfile | None], None]:
        """Yields the job whenever it changed; with its last state, where it is done, the profile."""
        last: MeasuringJob | None = None
        while True:
            changed = self._changed
            job = await self._get(job_id)
            if job.state is not JobState.RUNNING:
                done = job.state is JobState.DONE
                yield job, await self._store.profiles.get(job.profile_id) if done else None
                return
            if job != last:
                yield job, None
            last = job
            await changed.wait()

    async def cancel(self, job_id: str) -> MeasuringJob:
        """Cancels a job; what was measured is kept. A job that has ended stays as it is."""
        job = await self._get(job_id)
        if job.state is not JobState.RUNNING:
            return job
        if (task := self._tasks.get(job_id)) is not None:
            await end_tasks([task])
        job = replace(await self._get(job_id), message="")
        return await self._end(job, JobState.CANCELLED)

    async def list(self) -> list[MeasuringJob]:
        """All jobs, the newest first."""
        stored = {job.job_id: job for job in await self._store.jobs.all()}
        return sorted((stored | self._running).values(), key=lambda job: -job.created_at_s)

    async def stop(self) -> None:
        """Stops the tasks but keeps the jobs, which the next process resumes."""
        await end_tasks(list(self._tasks.values()))

    async def _get(self, job_id: str) -> MeasuringJob:
        job = self._running.get(job_id) or await self._store.jobs.get(job_id)
        if job is None:
            raise NotFoundError(f"There is no job '{job_id}'.", hint="ListMeasuring names them.", field="job_id")
        return job

    async def _take_up(self, job: MeasuringJob) -> None:
        work = await self._store.works.get(job.job_id)
        if work is not None:
            log.info("going on with %s, %d of %d programs", job.model, job.num_done, job.num_total)
            self._launch(job, work)

    def _launch(self, job: MeasuringJob, work: MeasuringWork) -> None:
        self._running[job.job_id] = job
        task = asyncio.create_task(self._run(job, work), name=f"measure-{job.job_id}")
        self._tasks[job.job_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(job.job_id, None))

    async def _run(self, job: MeasuringJob, work: MeasuringWork) -> None:
        while True:
            try:
                await self._run_once(job, work)
            except UnavailableError as error:
                log.warning("measuring %s waits: %s", job.model, error)
                self._show(replace(self._running[job.job_id], message=str(error)))
                await asyncio.sleep(_AGAIN_AFTER_S)
            else:
                return

    async def _run_once(self, job: MeasuringJob, work: MeasuringWork) -> None:
        async def report(num_done: int, num_cached: int, message: str) -> None:
            before = self._running[job.job_id]
            now = replace(before, num_done=num_done, num_cached=num_cached, message=message)
            if now != before:
                await self._store.jobs.put(now, job.job_id)
                self._show(now)

        run = JobRun(
            job,
            work,
            bench_workers=self._bench_workers,
            machines=self._machines,
            store=self._store,
            catalogue=self._catalogue,
            report=report,
        )
        try:
            profile = await run.run()
        except UnavailableError:
            raise
        except HeadwayError as error:
            log.warning("measuring %s failed: %s", job.model, error)
            await self._end(replace(self._running[job.job_id], message=str(error)), JobState.FAILED)
            return
        except Exception as error:
            log.exception("measuring %s failed", job.model)
            message = f"A fault of Headway: {type(error).__name__}: {error}. The profiler's log says more."
            await self._end(replace(self._running[job.job_id], message=message), JobState.FAILED)
            return
        await self._store.profiles.put(profile, profile.profile_id)
        log.info("measured %s: %d programs anew", job.model, profile.num_measured)
        await self._end(self._running[job.job_id], JobState.DONE)

    async def _end(self, job: MeasuringJob, state: JobState) -> MeasuringJob:
        ended = replace(job, state=state)
        await self._store.jobs.put(ended, job.job_id)
        await self._store.works.delete(job.job_id)
        self._running.pop(job.job_id, None)
        self._tell()
        return ended

    def _show(self, job: MeasuringJob) -> None:
        self._running[job.job_id] = job
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
