"""Searches that do what a test says, in place of child processes."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from headway.core.errors import CancelledError, UnavailableError
from headway.core.search_job import SearchWork
from headway.core.search_progress import SearchProgress
from headway.planner.jobs.child import SearchAnswer, SearchOrder

PATIENCE_S = 20.0


def work_of(name: str, *, created_at_s: float = 0.0, time_limit_s: float | None = None) -> SearchWork:
    request = {"name": name, "profiles": [{"created_at_s": created_at_s, "latency_s": 0.1}]}
    return SearchWork(kind="placement", request=request, time_limit_s=time_limit_s)


class ScriptedSearch:
    """One search that runs.

    Attributes:
        best: what it goes on from, or has found since.
    """

    def __init__(self, order: SearchOrder) -> None:
        self.order = order
        self.best: dict[str, Any] | None = order.resume
        self.answers: asyncio.Queue[SearchAnswer | Exception] = asyncio.Queue()

    @property
    def job_id(self) -> str:
        return self.order.work.job_id

    def find(self, value: int) -> None:
        self.best = {"value": value}
        self.answers.put_nowait(
            SearchAnswer(progress=SearchProgress(phase="searching", best=self.best, best_figure=f"{value} points"))
        )

    def finish(self) -> None:
        self.answers.put_nowait(SearchAnswer(result={"found": self.best}))

    def crash(self) -> None:
        self.answers.put_nowait(UnavailableError("It was killed by SIGKILL."))

    def end_early(self) -> None:
        """As a search that is asked to stop does."""
        if self.best is None:
            self.answers.put_nowait(CancelledError("It was stopped before it found a placement."))
        else:
            self.answers.put_nowait(SearchAnswer(result={"found": self.best}, was_stopped=True))


class ScriptedSearches:
    """What `SearchJobs` runs; a test has the searches that run, in the order in which they began."""

    def __init__(self) -> None:
        self.running: list[ScriptedSearch] = []

    async def search(self, order: SearchOrder, stop: asyncio.Event) -> AsyncGenerator[SearchAnswer, None]:
        search = ScriptedSearch(order)
        self.running.append(search)
        stopping = asyncio.create_task(self._end_when(stop, search))
        try:
            while True:
                answer = await search.answers.get()
                if isinstance(answer, Exception):
                    raise answer
                yield answer
                if answer.result is not None:
                    return
        finally:
            stopping.cancel()
            self.running.remove(search)

    @staticmethod
    async def _end_when(stop: asyncio.Event, search: ScriptedSearch) -> None:
        await stop.wait()
        search.end_early()


async def until(is_so: Callable[[], bool]) -> None:
    """Waits for a condition of this process; TimeoutError where it does not come about."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - what changes sets no event
            await asyncio.sleep(0.001)
