"""The calls of PlannerService for search jobs: converts requests, calls the jobs, converts results."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing

from headway.core.errors import HeadwayError
from headway.core.search_job import SearchJob
from headway.planner.jobs.jobs import SearchJobs
from headway.rpc.convert.search import search_job_to_pb, search_work_from_pb
from headway.rpc.interceptors import Context
from headway.v1 import search_pb2


class SearchCalls:
    """A part of the planner's servicer."""

    def __init__(self, jobs: SearchJobs) -> None:
        self._jobs = jobs

    async def StartSearch(
        self, request: search_pb2.StartSearchRequest, context: Context
    ) -> search_pb2.StartSearchResponse:
        job = await self._jobs.start(search_work_from_pb(request), title=request.title, anew=request.anew)
        return search_pb2.StartSearchResponse(job=search_job_to_pb(job))

    async def GetSearch(self, request: search_pb2.GetSearchRequest, context: Context) -> search_pb2.GetSearchResponse:
        job = await self._jobs.get(request.job_id)
        best = await self._jobs.best(job)
        return search_pb2.GetSearchResponse(
            job=search_job_to_pb(job),
            best_json="" if best is None else json.dumps(best),
            result_json=await self._result(job),
        )

    async def WatchSearch(
        self, request: search_pb2.WatchSearchRequest, context: Context
    ) -> AsyncIterator[search_pb2.WatchSearchResponse]:
        async with aclosing(self._jobs.watch(request.job_id)) as jobs:
            async for job in jobs:
                yield search_pb2.WatchSearchResponse(job=search_job_to_pb(job), result_json=await self._result(job))

    async def StopSearch(
        self, request: search_pb2.StopSearchRequest, context: Context
    ) -> search_pb2.StopSearchResponse:
        job = await self._jobs.stop(request.job_id, give_up=request.give_up)
        return search_pb2.StopSearchResponse(job=search_job_to_pb(job))

    async def ListSearches(
        self, request: search_pb2.ListSearchesRequest, context: Context
    ) -> search_pb2.ListSearchesResponse:
        return search_pb2.ListSearchesResponse(jobs=[search_job_to_pb(job) for job in await self._jobs.list()])

    async def _result(self, job: SearchJob) -> str:
        """The result in JSON; empty where there is none."""
        if not job.state.has_ended:
            return ""
        try:
            return json.dumps(await self._jobs.result(job))
        except HeadwayError:
            return ""
