"""Search jobs, and the progress of searches for placements."""

from dataclasses import replace

from headway.core.codec import from_document
from headway.core.placement_search import BestPlacement
from headway.core.search_job import SearchJob
from headway.core.search_progress import SearchProgress
from headway.rpc.convert.document import to_pb
from headway.v1 import placement_pb2, search_pb2


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
