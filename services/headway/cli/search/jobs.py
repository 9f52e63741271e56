"""The command `headway plan jobs`."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from headway.cli.options import AsJson, StateDir
from headway.cli.search.follow import follow
from headway.cli.search.planner_link import PlannerLink, planner_link
from headway.cli.search.progress import showing
from headway.cli.search.results import result_view
from headway.cli.search.view import job_view, jobs_table
from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.core.search_job import SearchJob
from headway.rpc.convert import from_pb
from headway.v1 import search_pb2

app = typer.Typer(add_completion=False, help="Searches for plans: list, show and stop them.")

_TIMEOUT_S = 10.0

JobId = Annotated[str, typer.Argument(help="Its id, or how the id begins.", metavar="ID")]


@app.callback(invoke_without_command=True)
def list_jobs(context: typer.Context, *, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List the searches of the running stack; where none runs, those of this machine's commands."""
    if context.invoked_subcommand is not None:
        return
    jobs = asyncio.run(_list(state_dir))
    if as_json:
        typer.echo(json.dumps(to_document(jobs), indent=2))
    else:
        Console().print(jobs_table(jobs), highlight=False)


@app.command()
def show(
    job_id: JobId,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end first.")] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show how far a search is, and what it found. Ctrl-C ends the waiting; the search goes on."""
    job, best, result = asyncio.run(_show(job_id, state_dir, wait=wait))
    if as_json:
        typer.echo(json.dumps({"job": to_document(job), "best": best, "result": result}, indent=2))
        return
    Console().print(job_view(job), highlight=False)
    if result is not None:
        Console().print(result_view(job.kind, result, state_dir=state_dir), highlight=False)


@app.command()
def stop(
    job_id: JobId,
    *,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Don't wait for it; the same search again goes on from its best.")
    ] = False,
    state_dir: StateDir = None,
) -> None:
    """End a search with the best so far."""
    job = asyncio.run(_stop(job_id, state_dir, give_up=give_up))
    typer.echo(
        f"{job.job_id} has ended: {job.state}."
        if job.state.has_ended
        else f"{job.job_id} ends with the best so far; `headway plan jobs show {job.job_id}`"
    )


async def _list(state_dir: Path | None) -> list[SearchJob]:
    async with planner_link(state_dir) as link:
        return await _list_at(link)


async def _list_at(link: PlannerLink) -> list[SearchJob]:
    async with link.stub() as stub:
        response = await stub.ListSearches(search_pb2.ListSearchesRequest(), timeout=_TIMEOUT_S)
    return [from_pb(job, SearchJob) for job in response.jobs]


async def _show(
    prefix: str, state_dir: Path | None, *, wait: bool
) -> tuple[SearchJob, dict[str, Any] | None, dict[str, Any] | None]:
    """The job with its best so far and its result."""
    async with planner_link(state_dir) as link:
        job_id = _find(await _list_at(link), prefix).job_id
        if wait:
            with showing(Console(stderr=True)) as tell:
                await follow(link, job_id, stop=asyncio.Event(), show=tell)
        async with link.stub() as stub:
            response = await stub.GetSearch(search_pb2.GetSearchRequest(job_id=job_id), timeout=_TIMEOUT_S)
    return from_pb(response.job, SearchJob), _document(response.best_json), _document(response.result_json)


async def _stop(prefix: str, state_dir: Path | None, *, give_up: bool) -> SearchJob:
    async with planner_link(state_dir) as link:
        job_id = _find(await _list_at(link), prefix).job_id
        async with link.stub() as stub:
            request = search_pb2.StopSearchRequest(job_id=job_id, give_up=give_up)
            return from_pb((await stub.StopSearch(request, timeout=_TIMEOUT_S)).job, SearchJob)


def _find(jobs: list[SearchJob], prefix: str) -> SearchJob:
    """The job whose id begins so. NotFoundError where there is none, InvalidArgumentError where there are several."""
    found = [job for job in jobs if job.job_id.startswith(prefix)]
    if not found:
        raise NotFoundError(f"There is no search '{prefix}'.", hint="`headway plan jobs` lists them.")
    if len(found) > 1 and prefix not in {job.job_id for job in found}:
        raise InvalidArgumentError(f"{len(found)} searches begin with '{prefix}'.", hint="Give more of the id.")
    return next((job for job in found if job.job_id == prefix), found[0])


def _document(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    document: dict[str, Any] = json.loads(text)
    return document
