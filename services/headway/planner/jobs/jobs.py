"""Search jobs: started, watched, stopped, and gone on with after a restart."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from headway.core.errors import CancelledError, HeadwayError, InternalError, NotFoundError, UnavailableError
from headway.core.fault import Fault
from headway.core.search_job import SearchJob, SearchState, SearchWork
from headway.core.search_progress import SearchProgress
from headway.planner.jobs.bounds import SearchBounds
from headway.planner.jobs.child import SearchAnswer, SearchOrder, search_in_child
from headway.planner.jobs.kinds import check_kind
from headway.planner.jobs.store import SearchStore
from headway.rpc.tasks import end_tasks

log = logging.getLogger(__name__)

_AGAIN_AFTER_S = 1.0

Search = Callable[[SearchOrder, asyncio.Event], AsyncGenerator[SearchAnswer, None]]


@dataclass(frozen=True, slots=True)
class _End:
    state: SearchState
    result: dict[str, Any] | None = None
    fault: Fault | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class _Running:
    """A job that waits or runs here. `searching` is cancelled where its search is given up."""

    job: SearchJob
    order: SearchOrder
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    searching: "asyncio.Task[_End] | None" = None
    task: "asyncio.Task[None] | None" = None


class SearchJobs:
    """Runs searches in the order in which they came; who asks for what is searched already joins, and who asks for what
    was found gets that.

    Args:
        bounds: of what searches may use.
    """

    def __init__(
        self,
        store: SearchStore,
        *,
        num_at_once: int = 1,
        bounds: SearchBounds | None = None,
        search: Search = search_in_child,
    ) -> None:
        self._store = store
        self._search = search
        self._bounds = bounds or SearchBounds()
        self._places = asyncio.Semaphore(num_at_once)
        self._running: dict[str, _Running] = {}
        self._starting = asyncio.Lock()
        self._changed = asyncio.Event()

    async def resume(self) -> None:
        """Goes on with the jobs that an earlier process left."""
        while True:
            try:
                async with self._starting:
                    left = [job for job in await self._store.all() if not job.state.has_ended]
                    for job in sorted(left, key=lambda job: job.created_at_s):
                        if job.job_id not in self._running:
                            await self._take_up(job)
            except UnavailableError as error:
                log.warning("searches are not known: %s", error)
                await asyncio.sleep(_AGAIN_AFTER_S)
            else:
                return

    async def start(self, work: SearchWork, *, title: str = "", anew: bool = False) -> SearchJob:
        """Starts a job and returns when it is stored. One that was stopped or failed goes on from its best.

        Args:
            anew: search even though the result is known, and from nothing.

        Raises:
            InvalidArgumentError: there is no such kind of search, or it asks for more than it may have.
            UnavailableError: the store is away.
        """
        check_kind(work.kind)
        work = self._bounds.applied(work)
        job_id = work.job_id
        async with self._starting:
            if (running := self._running.get(job_id)) is not None:
                return running.job
            known = await self._store.get(job_id)
            if known is not None and known.state is SearchState.DONE and not anew:
                return known
            if anew:
                await self._store.forget_best(job_id)
            job = SearchJob(job_id=job_id, kind=work.kind, title=title, created_at_s=time.time())
            await self._store.works.put(work, job_id)
            await self._store.put(job)
            return self._launch(job, SearchOrder(work=work, resume=await self._store.best(job_id)))

    async def get(self, job_id: str) -> SearchJob:
        """The job; NotFoundError where there is none. Its progress has the best only while it runs."""
        running = self._running.get(job_id)
        job = running.job if running is not None else await self._store.get(job_id)
        if job is None:
            raise NotFoundError(
                f"There is no search '{job_id}'.", hint="`headway plan jobs` lists them.", field="job_id"
            )
        return job

    async def best(self, job: SearchJob) -> dict[str, Any] | None:
        """The best so far of a job that is not done; None where there is none."""
        return job.progress.best or await self._store.best(job.job_id)

    async def result(self, job: SearchJob) -> dict[str, Any]:
        """The result of a job that has ended; HeadwayError says why there is none."""
        result = await self._store.result(job.job_id)
        if result is not None:
            return result
        if job.fault is not None:
            raise job.fault.raised()
        raise CancelledError("The search was given up.", hint="Start it again, and it goes on from its best.")

    async def watch(self, job_id: str) -> AsyncGenerator[SearchJob, None]:
        """Yields the job whenever it changed, until it has ended or, left by a process that died, is not run here."""
        last: SearchJob | None = None
        while True:
            changed = self._changed
            job = await self.get(job_id)
            if job != last:
                yield job
            if job_id not in self._running:
                return
            last = job
            await changed.wait()

    async def stop(self, job_id: str, *, give_up: bool = False) -> SearchJob:
        """Asks a search to end with the best so far. It goes on until it does; one that has ended stays as it is.

        Args:
            give_up: don't wait for it; its best is kept, but there is no result.
        """
        async with self._starting:
            running = self._running.get(job_id)
            if running is None:
                job = await self.get(job_id)
                return job if job.state.has_ended else await self._end(job, _End(SearchState.STOPPED))
        running.stop.set()
        if running.searching is not None and (give_up or running.job.state is SearchState.QUEUED):
            running.searching.cancel()
        return running.job

    async def list(self) -> list[SearchJob]:
        """All jobs, the newest first."""
        jobs = {job.job_id: job for job in await self._store.all()}
        jobs |= {running.job.job_id: running.job for running in self._running.values()}
        return sorted(jobs.values(), key=lambda job: -job.created_at_s)

    async def close(self) -> None:
        """Ends the searches but keeps the jobs, with which the next process goes on."""
        await end_tasks([running.task for running in self._running.values() if running.task is not None])

    async def _take_up(self, job: SearchJob) -> None:
        work = await self._store.works.get(job.job_id)
        if work is None:
            fault = Fault.of(InternalError("What it searches is not known any more.", hint="Start it again."))
            await self._end(job, _End(SearchState.FAILED, fault=fault))
            return
        log.info("going on with %s", job.job_id)
        queued = replace(job, state=SearchState.QUEUED)
        self._launch(queued, SearchOrder(work=work, resume=await self._store.best(job.job_id)))

    def _launch(self, job: SearchJob, order: SearchOrder) -> SearchJob:
        running = _Running(job=job, order=order)
        running.searching = asyncio.create_task(self._search_in_turn(running), name=f"search-{job.job_id}")
        running.task = asyncio.create_task(self._see_through(running, running.searching), name=f"job-{job.job_id}")
        self._running[job.job_id] = running
        self._tell()
        return job

    async def _see_through(self, running: _Running, searching: "asyncio.Task[_End]") -> None:
        """Waits for a search and keeps what came of it; it alone says how a job has ended."""
        try:
            await asyncio.wait([searching])
        finally:
            await end_tasks([searching])
        end = _end_of(searching)
        log.info("%s: %s", running.job.job_id, end.state)
        while True:
            try:
                await self._end(running.job, end)
            except UnavailableError as error:
                log.warning("%s waits to be kept: %s", running.job.job_id, error)
                await asyncio.sleep(_AGAIN_AFTER_S)
            else:
                return

    async def _search_in_turn(self, running: _Running) -> _End:
        async with self._places:
            await self._change(running, replace(running.job, state=SearchState.RUNNING, started_at_s=time.time()))
            end = _End(SearchState.FAILED, fault=Fault.of(UnavailableError("The search ended without an answer.")))
            try:
                async with aclosing(self._search(running.order, running.stop)) as answers:
                    async for answer in answers:
                        if answer.progress is not None:
                            await self._hear(running, answer.progress)
                        if answer.result is not None:
                            state = SearchState.STOPPED if answer.was_stopped else SearchState.DONE
                            end = _End(state, result=answer.result)
            except HeadwayError as error:
                log.warning("%s failed: %s", running.job.job_id, error)
                return _End(_state_of(error, running), fault=Fault.of(error))
            return end

    async def _hear(self, running: _Running, progress: SearchProgress) -> None:
        before = running.job.progress
        known = before if progress.best is None else progress
        shown = replace(progress, best=known.best, best_figure=progress.best_figure or known.best_figure)
        await self._change(running, replace(running.job, progress=shown), best=progress.best)

    async def _change(self, running: _Running, job: SearchJob, *, best: dict[str, Any] | None = None) -> None:
        """Keeps a change with what is better, and shows it. While the store is away it is kept with a later one."""
        try:
            if best is not None:
                await self._store.put_best(job.job_id, best)
            await self._store.put(job)
        except UnavailableError as error:
            log.warning("%s is not kept: %s", job.job_id, error)
        running.job = job
        self._tell()

    async def _end(self, job: SearchJob, end: _End) -> SearchJob:
        ended = replace(job, state=end.state, fault=end.fault, ended_at_s=time.time())
        await self._store.end(ended, end.result)
        self._running.pop(job.job_id, None)
        self._tell()
        return ended

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _end_of(searching: "asyncio.Task[_End]") -> _End:
    if searching.cancelled():
        return _End(SearchState.STOPPED)
    if (error := searching.exception()) is None:
        return searching.result()
    log.error("a search ended by a fault of Headway", exc_info=error)
    fault = InternalError(f"{type(error).__name__}: {error}", hint="This is a fault of Headway; its log says more.")
    return _End(SearchState.FAILED, fault=Fault.of(fault))


def _state_of(error: HeadwayError, running: _Running) -> SearchState:
    """A search that has nothing when it is asked to stop has not failed."""
    is_wanted = running.stop.is_set() and isinstance(error, CancelledError)
    return SearchState.STOPPED if is_wanted else SearchState.FAILED
