"""Measuring a captured model through the profiler, with a bar."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from headway.cli.profiler_link import ProfilerLink, profiler_link
from headway.cli.service_link import has_stack
from headway.core.errors import (
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    UnavailableError,
)
from headway.core.graph import Graph
from headway.core.measuring_job import JobState, MeasuringJob
from headway.core.model_profile import ModelProfile
from headway.core.program import Program
from headway.core.timing import check_share
from headway.core.unit_programs import UnitPrograms, unit_programs, with_stages
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import common_pb2, profiler_pb2

_CALL_TIMEOUT_S = 60.0
_AGAIN_AFTER_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOptions:
    """How a captured model is measured.

    Attributes:
        worker_id: the worker whose kind of hardware is measured; empty for the newest worker's.
        share, longest_s: see `MeasuringWork`.
        num_stages: consecutive layers to measure as one; 0 for none.
        device, num_threads: of the worker where no stack runs.
    """

    worker_id: str = ""
    share: float
    longest_s: float
    deadline_s: float
    num_stages: int = 0
    device: str = "cpu"
    num_threads: int = 0
    state_dir: Path | None = None

    def __post_init__(self) -> None:
        check_share(self.share)


async def measure_model(graph: Graph, program: Program, options: MeasureOptions) -> ModelProfile:
    """Measures a model; when cancelled or late it cancels the job, and what was measured is kept.

    Raises:
        InternalError: the job failed.
        DeadlineExceededError: it took longer than `deadline_s`.
    """
    units = await asyncio.to_thread(unit_programs, graph, program)
    async with profiler_link(options.state_dir, device=options.device, num_threads=options.num_threads) as link:
        try:
            async with asyncio.timeout(options.deadline_s):
                with measuring_bar() as bar:
                    return await Measuring(link, options, bar).run(graph, program, units)
        except TimeoutError:
            raise DeadlineExceededError(
                f"{graph.name} was not measured within {options.deadline_s:.0f} s.",
                hint="Run the command again, it goes on from there; or give it a longer --deadline.",
            ) from None


def require_stack(options: MeasureOptions) -> None:
    """Raises FailedPreconditionError where no stack runs that could go on with a job."""
    if not has_stack(options.state_dir):
        raise FailedPreconditionError("No stack is running that could go on.", hint="Leave out --detach.")


async def start_measuring(graph: Graph, program: Program, options: MeasureOptions) -> MeasuringJob:
    """Starts a job on the stack and returns while it runs."""
    units = await asyncio.to_thread(unit_programs, graph, program)
    async with profiler_link(options.state_dir) as link:
        return await _start(link, units, options)


async def _start(link: ProfilerLink, units: UnitPrograms, options: MeasureOptions) -> MeasuringJob:
    request = profiler_pb2.StartMeasuringRequest(
        subject=to_pb(units.subject, profiler_pb2.Subject),
        programs=[to_pb(program, common_pb2.Program) for program in units.programs.values()],
        worker_id=options.worker_id,
        share=options.share,
        longest_s=options.longest_s,
    )
    async with link.stub() as stub:
        response = await stub.StartMeasuring(request, timeout=_CALL_TIMEOUT_S)
    return from_pb(response.job, MeasuringJob)


class Measuring:
    """Measures programs through a profiler, and shows how far that is."""

    def __init__(self, link: ProfilerLink, options: MeasureOptions, bar: Progress) -> None:
        self._link = link
        self._options = options
        self._bar = bar
        self._task: TaskID = bar.add_task("starting", total=None)

    async def run(self, graph: Graph, program: Program, units: UnitPrograms) -> ModelProfile:
        """Runs the job, then one for the stages: these are chosen by the times of their layers."""
        profile = await self.measure(units)
        if not self._options.num_stages:
            return profile
        staged = await self.measure(with_stages(units, graph, program, profile.split(self._options.num_stages)))
        num_measured = profile.num_measured + staged.num_measured
        num_known = staged.num_measured + staged.num_cached
        return replace(staged, num_measured=num_measured, num_cached=num_known - num_measured)

    async def measure(self, units: UnitPrograms) -> ModelProfile:
        """Measures what is not known of some programs; cancelled, it cancels the job, and what was measured is kept."""
        job = await _start(self._link, units, self._options)
        try:
            while True:
                try:
                    return await self._watch(job.job_id)
                except UnavailableError as error:
                    if not self._link.is_restarted:
                        raise
                    self._bar.update(self._task, description=error.message)
                await asyncio.sleep(_AGAIN_AFTER_S)
        except asyncio.CancelledError:
            await self._cancel(job.job_id)
            raise

    async def _watch(self, job_id: str) -> ModelProfile:
        async with self._link.stub() as stub:
            async for response in stub.WatchMeasuring(profiler_pb2.WatchMeasuringRequest(job_id=job_id)):
                job = from_pb(response.job, MeasuringJob)
                description = job.message or f"measuring on {job.hardware}"
                self._bar.update(self._task, completed=job.num_done, total=job.num_total, description=description)
                if job.state is JobState.DONE:
                    return from_pb(response.profile, ModelProfile)
                if job.state is JobState.FAILED:
                    raise InternalError(job.message)
                if job.state is JobState.CANCELLED:
                    raise CancelledError("The job was cancelled.", hint="Run the command again, it goes on from there.")
        raise UnavailableError("The profiler went away.", hint="Run the command again, it goes on from there.")

    async def _cancel(self, job_id: str) -> None:
        async with self._link.stub() as stub:
            await stub.CancelMeasuring(profiler_pb2.CancelMeasuringRequest(job_id=job_id), timeout=_CALL_TIMEOUT_S)


def measuring_bar() -> Progress:
    """A bar that goes away when it is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
