"""The search for a frontier, as a job: request and result are documents of `FrontierSearch` and `Frontier`."""

from collections.abc import Callable
from typing import Any

from headway.core.codec import from_document, to_document
from headway.core.frontier import Frontier
from headway.core.placement_search import FrontierSearch
from headway.core.search_progress import SearchProgress
from headway.planner.jobs.placement import contents
from headway.planner.placement.planning.frontier import find_frontier


def run(
    request: dict[str, Any],
    *,
    report: Callable[[SearchProgress], None],
    should_stop: Callable[[], bool],
    resume: dict[str, Any] | None,
) -> dict[str, Any]:
    """Finds a frontier; see `kinds.RunSearch`. Errors are those of `find_frontier`."""
    search = from_document(FrontierSearch, request)
    frontier = find_frontier(
        search.problem,
        contents(search.files),
        question=search.question,
        target=search.target,
        report=report,
        should_stop=should_stop,
        resume=None if resume is None else from_document(Frontier, resume),
    )
    found: dict[str, Any] = to_document(frontier)
    return found
