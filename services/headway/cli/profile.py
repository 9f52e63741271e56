"""`headway profile`"""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from headway.cli.calls import calling
from headway.cli.options import AsJson, StateDir
from headway.cli.profile_catalogue import show_catalogue
from headway.cli.profile_exchange import export_profiles, find_by_prefix, get_imported, import_file, list_imported
from headway.cli.profile_model import profile_model
from headway.cli.profile_view import imported_view, summary_table
from headway.cli.running import endpoint_of
from headway.client import Client
from headway.core.codec import to_document
from headway.core.profile import Profile
from headway.core.profile_summary import ProfileSummary
from headway.core.units import format_duration
from headway.rpc.convert import from_pb
from headway.v1 import profiler_pb2, profiler_pb2_grpc

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Show what models consist of, and what was measured. Also: known hardware, and profiles that others made.",
)
app.command("model")(profile_model)
app.command("catalogue")(show_catalogue)
app.command("import")(import_file)
app.command("export")(export_profiles)

_TIMEOUT_S = 10.0


@app.command("list")
def list_profiles(*, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List the profiles that are stored, those of workers and those that were imported."""
    profiles, imported = _profiles(state_dir), list_imported(state_dir)
    if as_json:
        typer.echo(json.dumps(to_document([*profiles, *imported]), indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in ("profile", "model", "hardware", "threads", "points", "error", "origin", "made at"):
        table.add_column(name, no_wrap=name != "model", overflow="fold")
    for profile in profiles:
        hardware = profile.hardware
        table.add_row(
            profile.profile_id,
            profile.architecture,
            hardware.name,
            str(hardware.num_threads),
            str(len(profile.measurements)),
            f"{profile.latency.relative_error:.1%}",
            profile.latency.origin,
            _local_time(profile.created_at_s),
        )
    Console().print(table)
    if imported:
        Console().print(summary_table(imported))


@app.command()
def show(
    profile_id: Annotated[str, typer.Argument(help="Its id, or how the id begins.")],
    *,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the measurements of a profile beside the latency model fitted to them."""
    known: list[Profile | ProfileSummary] = [*_profiles(state_dir), *list_imported(state_dir)]
    profile = find_by_prefix(known, profile_id)
    if isinstance(profile, ProfileSummary):
        imported = get_imported(profile.profile_id, state_dir)
        if as_json:
            typer.echo(json.dumps(to_document(imported), indent=2))
        else:
            Console().print(imported_view(imported), highlight=False)
        return
    if as_json:
        typer.echo(json.dumps(to_document(profile), indent=2))
        return
    table = Table("prefill tokens", "decodes", "context tokens", "measured", "fitted", box=box.SIMPLE_HEAD)
    for point in profile.measurements:
        fitted_s = profile.latency.step_s(
            prefill_tokens=point.prefill_tokens,
            prefill_context=point.context_tokens,
            num_decodes=point.num_decodes,
            context_tokens=point.num_decodes * point.context_tokens,
        )
        counts = (point.prefill_tokens, point.num_decodes, point.context_tokens)
        table.add_row(*map(str, counts), format_duration(point.step_s), format_duration(fitted_s))
    Console().print(table)


def _local_time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def _profiles(state_dir: Path | None) -> list[Profile]:
    with Client(state_dir=state_dir) as client:
        endpoint = endpoint_of("profiler", client.status())
    return asyncio.run(_list(endpoint))


async def _list(endpoint: str) -> list[Profile]:
    async with calling(endpoint, profiler_pb2_grpc.ProfilerServiceStub) as profiler:
        response = await profiler.ListProfiles(profiler_pb2.ListProfilesRequest(), timeout=_TIMEOUT_S)
    return [from_pb(profile, Profile) for profile in response.profiles]
