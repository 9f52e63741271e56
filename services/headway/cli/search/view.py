"""Shows search jobs."""

import time
from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from headway.cli.search.progress import progress_text
from headway.cli.time_text import local_time
from headway.core.search_job import SearchJob, SearchState
from headway.core.units import format_duration


def jobs_table(jobs: Sequence[SearchJob]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("job", "state", "asked at", "took", "searches", "best"):
        table.add_column(name, no_wrap=name in ("job", "state", "asked at"), overflow="fold")
    for job in jobs:
        asked_at = local_time(job.created_at_s)
        table.add_row(job.job_id, job.state, asked_at, _took(job), job.title, job.progress.best_figure or "-")
    return table


def job_view(job: SearchJob) -> RenderableType:
    """Shows how far a job is, or how it ended."""
    text = Text.assemble((job.job_id, "bold"), f": {job.state}, {job.title or job.kind}")
    text.append(f"\nasked for at {local_time(job.created_at_s)}, ran for {_took(job)}")
    if job.progress.phase:
        text.append(f"\n{progress_text(job.progress)}")
    if job.fault is not None:
        text.append(f"\n{job.fault.message} {job.fault.hint}".rstrip(), style="yellow")
    return text


def _took(job: SearchJob) -> str:
    if not job.started_at_s:
        return "-"
    until_s = job.ended_at_s if job.state.has_ended else time.time()
    return format_duration(until_s - job.started_at_s) if job.state is not SearchState.QUEUED else "-"
