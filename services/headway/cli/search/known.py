"""What this machine's commands have searched before: known without a planner, which takes a second to start."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.core.search_job import SearchJob, SearchState, SearchWork
from headway.store.document_files import DocumentFiles
from headway.store.schema import SEARCH_JOB, SEARCH_RESULT


@dataclass(frozen=True, slots=True)
class KnownSearch:
    """A search that came to its end, and what it found."""

    job: SearchJob
    result: dict[str, Any]


async def find_known(searches_dir: Path, work: SearchWork) -> KnownSearch | None:
    """Finds the search for the same in the directory of the commands' own planners; None where there is none."""
    job = await DocumentFiles(searches_dir, SEARCH_JOB, SearchJob).get(work.job_id)
    if job is None or job.state is not SearchState.DONE:
        return None
    result = await DocumentFiles[dict[str, Any]](searches_dir, SEARCH_RESULT, dict).get(work.job_id)
    return None if result is None else KnownSearch(job, result)
