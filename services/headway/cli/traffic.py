"""The command `headway traffic`."""

import asyncio
import gzip
import sys
import time
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from headway.cli.duration import parse_duration
from headway.cli.options import StateDir
from headway.cli.private_store import store_of
from headway.cli.supervisor.supervisor import NAMESPACE
from headway.client.stack import default_state_dir
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.core.traffic import write_replay
from headway.store.redis import Database
from headway.store.traffic import TrafficStore

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Export the requests that arrived.")


@app.callback()
def traffic() -> None:
    """The router records when requests arrive, for which model, and with which objective; never what they say."""


@app.command()
def export(
    *,
    window: Annotated[
        Any, typer.Option(parser=parse_duration, metavar="24h", help="How far back. Default: all that is kept.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only of this model. Repeatable.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to: trace.csv, or trace.csv.gz. Default: print it.", dir_okay=False)
    ] = None,
    state_dir: StateDir = None,
) -> None:
    """Write the arrivals as CSV, as `headway plan serve --workload replay:FILE` reads them."""
    if out is not None and not out.parent.is_dir():
        raise InvalidArgumentError(f"There is no directory {out.parent}.", hint="Make it, or name another --out.")
    end_s = time.time()
    start_s = 0.0 if window is None else end_s - window
    with store_of(state_dir or default_state_dir()) as redis_url:
        if out is None:
            num_requests = asyncio.run(_write(redis_url, start_s, end_s, model, sys.stdout))
        else:
            with gzip.open(out, "wt") if out.suffix == ".gz" else out.open("w") as file:
                num_requests = asyncio.run(_write(redis_url, start_s, end_s, model, file))
    if num_requests == 0:
        raise NotFoundError("No requests are on record in that time.", hint="The record begins with the router.")
    typer.echo(f"{num_requests} requests" + (f" in {out}" if out is not None else ""), err=True)


async def _write(redis_url: str, start_s: float, end_s: float, models: list[str] | None, file: TextIO) -> int:
    """Writes arrivals as CSV, and returns the number of requests."""
    database = Database.connect(redis_url, namespace=NAMESPACE)
    num_requests = 0
    try:
        file.write(write_replay(()))
        async for of_hour in TrafficStore(database).read(start_s, end_s):
            wanted = [arrival for arrival in of_hour if not models or arrival.model in models]
            file.write(write_replay(wanted, header=False))
            num_requests += len(wanted)
    finally:
        await database.close()
    return num_requests
