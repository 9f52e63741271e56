"""Starts a search at a planner and follows it to its end, past a restart of the planner."""

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc

from headway.cli.search.known import find_known
from headway.cli.search.planner_link import PlannerLink
from headway.cli.search.progress import Show
from headway.cli.time_text import local_time
from headway.core.errors import CancelledError, HeadwayError, UnavailableError
from headway.core.search_job import SearchJob, SearchState
from headway.core.search_progress import SearchProgress
from headway.rpc.convert import from_pb
from headway.rpc.convert.search import search_work_from_pb
from headway.rpc.tasks import end_tasks
from headway.v1 import placement_pb2, planner_pb2_grpc, search_pb2

_CALL_TIMEOUT_S = 60.0
_GIVE_UP_TIMEOUT_S = 2.0
_AGAIN_AFTER_S = 0.5
_UNTIL_RESTARTED_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOrder:
    """A search to start.

    Attributes:
        request: a document in the form of the kind.
        files: content by name; goes beside the request, which would not hold it.
        title: what is searched, in words.
        time_limit_s: seconds after which to take the best so far.
        anew: search even though the result is known, and from nothing.
    """

    kind: str
    request: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)
    title: str = ""
    time_limit_s: float | None = None
    anew: bool = False


async def start_search(link: PlannerLink, order: SearchOrder) -> SearchJob:
    """Starts a search, joins it where it is under way, or finds that it is done."""
    async with link.stub() as stub:
        response = await stub.StartSearch(_request(order), timeout=_CALL_TIMEOUT_S)
    return from_pb(response.job, SearchJob)


async def run_search(link: PlannerLink, order: SearchOrder, *, stop: asyncio.Event, show: Show) -> dict[str, Any]:
    """Starts a search and returns its result, as a document.

    Args:
        stop: once set, the search ends with the best so far. A cancelled call gives it up.

    Raises:
        HeadwayError: the search's own; UnavailableError where its process, or the command's own planner, died.
    """
    if link.searches_dir is not None and not order.anew:
        known = await find_known(link.searches_dir, search_work_from_pb(_request(order)))
        if known is not None:
            _show_known(known.job, show)
            return known.result
    job = await start_search(link, order)
    if job.state is SearchState.DONE:
        _show_known(job, show)
    try:
        return await follow(link, job.job_id, stop=stop, show=show)
    except asyncio.CancelledError:
        await _give_up(link, job.job_id)
        raise


async def follow(link: PlannerLink, job_id: str, *, stop: asyncio.Event, show: Show) -> dict[str, Any]:
    """Follows a search to its end and returns its result; see `run_search`."""
    seen_s = time.monotonic()
    while True:
        try:
            last = await _watch(link, job_id, stop, show)
        except UnavailableError as error:
            if not link.is_restarted or time.monotonic() > seen_s + _UNTIL_RESTARTED_S:
                raise
            show(SearchProgress(phase=error.message))
        else:
            seen_s = time.monotonic()
            if last is not None:
                return _result_of(last)
        await asyncio.sleep(_AGAIN_AFTER_S)


async def _watch(
    link: PlannerLink, job_id: str, stop: asyncio.Event, show: Show
) -> search_pb2.WatchSearchResponse | None:
    """Shows a job whenever it changes; returns the last message, or None where the planner is yet to take it up."""
    response = None
    async with link.stub() as stub:
        stopping = asyncio.create_task(_stop_when_asked(stub, job_id, stop))
        try:
            async for response in stub.WatchSearch(search_pb2.WatchSearchRequest(job_id=job_id)):
                _show(from_pb(response.job, SearchJob), show)
        finally:
            await end_tasks([stopping])
    if response is not None and SearchState(response.job.state).has_ended:
        return response
    if not link.is_restarted:
        raise UnavailableError("The planner went away.", hint="Run the command again, it goes on from there.")
    return None


async def _stop_when_asked(stub: "planner_pb2_grpc.PlannerServiceAsyncStub", job_id: str, stop: asyncio.Event) -> None:
    await stop.wait()
    with suppress(grpc.aio.AioRpcError):  # whoever watches the job hears of it too
        await stub.StopSearch(search_pb2.StopSearchRequest(job_id=job_id), timeout=_CALL_TIMEOUT_S)


async def _give_up(link: PlannerLink, job_id: str) -> None:
    with suppress(HeadwayError):
        async with link.stub() as stub:
            request = search_pb2.StopSearchRequest(job_id=job_id, give_up=True)
            await stub.StopSearch(request, timeout=_GIVE_UP_TIMEOUT_S)


def _request(order: SearchOrder) -> search_pb2.StartSearchRequest:
    return search_pb2.StartSearchRequest(
        kind=order.kind,
        request_json=json.dumps(order.request),
        files=[placement_pb2.FileContent(name=name, content=content) for name, content in order.files.items()],
        time_limit_s=order.time_limit_s,
        title=order.title,
        anew=order.anew,
    )


def _show_known(job: SearchJob, show: Show) -> None:
    show(SearchProgress(phase=f"known since {local_time(job.ended_at_s)}; --anew searches again"))


def _show(job: SearchJob, show: Show) -> None:
    if job.state is SearchState.QUEUED:
        show(SearchProgress(phase="waiting for its turn"))
    elif job.progress.phase:
        show(job.progress)


def _result_of(last: search_pb2.WatchSearchResponse) -> dict[str, Any]:
    if last.result_json:
        result: dict[str, Any] = json.loads(last.result_json)
        return result
    fault = from_pb(last.job, SearchJob).fault
    if fault is not None:
        raise fault.raised()
    raise CancelledError("The search was given up.", hint="Run the command again, it goes on from its best.")
