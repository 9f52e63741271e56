"""Searches over placements: the problem made of the user's files, then a search job."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from headway.cli.placement.problem import ProblemOptions, make_problem, read_inputs
from headway.cli.search.follow import SearchOrder, run_search, start_search
from headway.cli.search.interrupt import interruptible
from headway.cli.search.planner_link import planner_link, require_stack, stack_planner
from headway.cli.search.progress import showing
from headway.core.codec import to_document
from headway.core.placement_problem import PlacementProblem
from headway.core.placement_search import FrontierSearch, PlacementSearch
from headway.core.search_job import SearchJob


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How a search is run.

    Attributes:
        time_limit_s: seconds after which to take the best so far.
        detach: leave it to the running stack, and don't wait for it.
        anew: search even though the result is known, and from nothing.
        ray: cluster to search on; empty for none.
        processes: that search at once; None for what the planner takes.
    """

    time_limit_s: float | None
    detach: bool
    anew: bool
    ray: str = ""
    processes: int | None = None


async def search_placements(
    kind: str,
    make: Callable[[PlacementProblem], PlacementSearch | FrontierSearch],
    *,
    problem: ProblemOptions,
    options: SearchOptions,
) -> dict[str, Any] | SearchJob:
    """Searches and returns the result as a document; of a detached search the job."""
    if options.detach:
        require_stack(problem.state_dir, ray=options.ray)
    inputs, console = await read_inputs(problem), Console(stderr=True)
    with interruptible(console) as stop, showing(console) as show:
        async with planner_link(
            problem.state_dir, catalogue=problem.catalogue, ray=options.ray, processes=options.processes
        ) as planner:
            search = make(await make_problem(inputs, planner, show))
            order = SearchOrder(
                kind=kind,
                request=to_document(search),
                files=inputs.files,
                title=search.title,
                time_limit_s=options.time_limit_s,
                anew=options.anew,
            )
            if options.detach:
                return await start_search(stack_planner(problem.state_dir), order)
            return await run_search(planner, order, stop=stop, show=show)
