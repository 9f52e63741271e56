"""Runs a search for a schedule as a job of the planner."""

from pathlib import Path

from rich.console import Console

from headway.cli.search.follow import SearchOrder, run_search
from headway.cli.search.interrupt import interruptible
from headway.cli.search.planner_link import planner_link
from headway.cli.search.progress import showing
from headway.core.codec import from_document, to_document
from headway.core.schedule_search import ScheduleReport, ScheduleSearch


async def search_schedule(
    search: ScheduleSearch, *, time_limit_s: float | None, anew: bool, state_dir: Path | None
) -> ScheduleReport:
    """Searches, and shows how far it is; HeadwayError is the search's own."""
    console = Console(stderr=True)
    order = SearchOrder(
        kind="schedule",
        request=to_document(search),
        title=search.title,
        time_limit_s=time_limit_s,
        anew=anew,
    )
    with interruptible(console) as stop, showing(console) as show:
        async with planner_link(state_dir) as planner:
            return from_document(ScheduleReport, await run_search(planner, order, stop=stop, show=show))
