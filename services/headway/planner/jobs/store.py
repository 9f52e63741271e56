"""What is kept of search jobs, in Redis or in files."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from headway.core.search_job import SearchJob, SearchState, SearchWork
from headway.store.document_files import DocumentFiles
from headway.store.documents import Documents
from headway.store.redis import Database
from headway.store.schema import SEARCH_BEST, SEARCH_JOB, SEARCH_RESULT, SEARCH_WORK, KeyFamily

T = TypeVar("T")

_MOST_ENDED = 100


class Kept(Protocol[T]):
    """Documents of one type by id; see `headway.store.documents.Documents`."""

    async def put(self, value: T, *parts: str) -> None: ...
    async def get(self, *parts: str) -> T | None: ...
    async def delete(self, *parts: str) -> bool: ...
    async def all(self) -> list[T]: ...


class SearchStore:
    """Jobs, and by the ids of jobs what they search, their best so far and their results.

    Every method raises UnavailableError while Redis is away, or the directory cannot be written.
    """

    def __init__(self, keep: Callable[[KeyFamily, type[Any]], Kept[Any]]) -> None:
        self.works: Kept[SearchWork] = keep(SEARCH_WORK, SearchWork)
        self._jobs: Kept[SearchJob] = keep(SEARCH_JOB, SearchJob)
        self._bests: Kept[dict[str, Any]] = keep(SEARCH_BEST, dict)
        self._results: Kept[dict[str, Any]] = keep(SEARCH_RESULT, dict)

    @classmethod
    def in_redis(cls, database: Database) -> "SearchStore":
        return cls(lambda family, kind: Documents(database, family, kind))

    @classmethod
    def in_files(cls, directory: Path) -> "SearchStore":
        return cls(lambda family, kind: DocumentFiles(directory, family, kind))

    async def put(self, job: SearchJob) -> None:
        """Keeps a job, but for its best."""
        await self._jobs.put(replace(job, progress=replace(job.progress, best=None)), job.job_id)

    async def end(self, job: SearchJob, result: dict[str, Any] | None) -> None:
        """Keeps a job that has ended, and its result; one that is not done keeps its best to go on from."""
        if result is None:
            await self._results.delete(job.job_id)
        else:
            await self._results.put(result, job.job_id)
        await self.put(job)
        if job.state is SearchState.DONE:
            await self._bests.delete(job.job_id)
        elif job.progress.best is not None:  # it may have been found while the store was away
            await self._bests.put(job.progress.best, job.job_id)
        await self.works.delete(job.job_id)
        ended = sorted((each for each in await self.all() if each.state.has_ended), key=_age_s)
        for old in ended[_MOST_ENDED:]:
            await self._jobs.delete(old.job_id)
            await self._bests.delete(old.job_id)
            await self._results.delete(old.job_id)

    async def get(self, job_id: str) -> SearchJob | None:
        """The job, without its best."""
        return await self._jobs.get(job_id)

    async def all(self) -> list[SearchJob]:
        return await self._jobs.all()

    async def put_best(self, job_id: str, best: dict[str, Any]) -> None:
        await self._bests.put(best, job_id)

    async def best(self, job_id: str) -> dict[str, Any] | None:
        return await self._bests.get(job_id)

    async def forget_best(self, job_id: str) -> None:
        await self._bests.delete(job_id)

    async def result(self, job_id: str) -> dict[str, Any] | None:
        return await self._results.get(job_id)


def _age_s(job: SearchJob) -> float:
    """Since its end; of one that ended before the clock was set back it is not known, and that one goes first."""
    age_s = time.time() - job.ended_at_s
    return age_s if age_s >= 0 else math.inf
