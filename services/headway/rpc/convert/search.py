"""Search jobs, and the progress of searches for placements."""

import base64
import json
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from headway.core.codec import from_document
from headway.core.errors import InvalidArgumentError
from headway.core.placement_search import BestPlacement
from headway.core.search_job import SearchJob, SearchWork
from headway.core.search_progress import SearchProgress
from headway.rpc.convert.document import to_pb
from headway.v1 import placement_pb2, search_pb2


def search_work_from_pb(request: search_pb2.StartSearchRequest) -> SearchWork:
    """InvalidArgumentError where the request is no document."""
    return search_work(
        request.kind,
        _read(request.request_json),
        files=request.files,
        time_limit_s=request.time_limit_s if request.HasField("time_limit_s") else None,
    )


def search_work(
    kind: str,
    request: dict[str, Any],
    *,
    files: Iterable[placement_pb2.FileContent] = (),
    time_limit_s: float | None = None,
) -> SearchWork:
    """The work of a search, by this version of Headway; the files become a field of the request."""
    contents = {file.name: base64.b64encode(file.content).decode() for file in files}
    return SearchWork(
        kind=kind,
        request=request | ({"files": contents} if contents else {}),
        time_limit_s=time_limit_s,
        version=version("headway"),
    )


def search_job_to_pb(job: SearchJob) -> search_pb2.SearchJob:
    """All but the best so far, which may be large."""
    return to_pb(replace(job, progress=replace(job.progress, best=None)), search_pb2.SearchJob)


def placement_progress_to_pb(
    progress: SearchProgress, *, has_placement: bool = True
) -> placement_pb2.PlacementProgress:
    """Args:
    has_placement: whether the best so far is a placement; else it travels in words alone.
    """
    message = to_pb(progress, placement_pb2.PlacementProgress, without={"best"})
    if progress.best is not None and has_placement:
        best = from_document(BestPlacement, progress.best)
        message.attainment, message.groups = best.attainment, best.placement.shapes
    return message


def placement_progress_from_pb(message: placement_pb2.PlacementProgress) -> SearchProgress:
    """Without the best itself."""
    return SearchProgress(
        phase=message.phase,
        done=message.done,
        total=message.total,
        best_figure=message.best_figure,
        elapsed_s=message.elapsed_s,
    )


def _read(text: str) -> dict[str, Any]:
    try:
        request = json.loads(text)
    except ValueError as error:
        raise InvalidArgumentError(f"request_json is no JSON: {error}.", field="request_json") from error
    if not isinstance(request, dict):
        raise InvalidArgumentError("request_json should be an object.", field="request_json")
    return request
