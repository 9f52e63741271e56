"""What a command says of a search that it left to the stack."""

import json

import typer

from headway.core.codec import to_document
from headway.core.search_job import SearchJob, SearchState


def tell_started(job: SearchJob, *, as_json: bool) -> None:
    """Prints which job it is, and how to see what comes of it."""
    verb = "Found already" if job.state is SearchState.DONE else "Searching"
    show = f"{verb}; `headway plan jobs show {job.job_id}`"
    typer.echo(json.dumps(to_document(job), indent=2) if as_json else show)
