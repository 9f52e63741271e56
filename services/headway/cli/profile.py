"""`headway profile`"""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from headway.cli.calls import calling
from headway.cli.options import AsJson, StateDir
from headway.cli.running import endpoint_of
from headway.client import Client
from headway.core.codec import to_document
from headway.core.errors import NotFoundError
from headway.core.profile import Profile
from headway.core.units import format_duration
from headway.rpc.convert import from_pb
from headway.v1 import profiler_pb2, profiler_pb2_grpc

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Show what was measured of the models.")

_TIMEOUT_S = 10.0


@app.command("list")
def list_profiles(*, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List the profiles that are stored."""
    profiles = _profiles(state_dir)
    if as_json:
        typer.echo(json.dumps(to_document(profiles), indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for name in ("profile", "model", "hardware", "threads", "points", "error", "made at"):
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
            datetime.fromtimestamp(profile.created_at_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M"),
        )
    Console().print(table)


@app.command()
def show(
    profile_id: Annotated[str, typer.Argument(help="Its id, or how the id begins.")],
    *,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the measurements of a profile beside the latency model fitted to them."""
    profile = _find(_profiles(state_dir), profile_id)
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


def _find(profiles: Sequence[Profile], prefix: str) -> Profile:
    found = [profile for profile in profiles if profile.profile_id.startswith(prefix)]
    if len(found) != 1:
        raise NotFoundError(
            f"{len(found) or 'No'} profiles begin with {prefix}.", hint="`headway profile list` shows their ids."
        )
    return found[0]


def _profiles(state_dir: Path | None) -> list[Profile]:
    with Client(state_dir=state_dir) as client:
        endpoint = endpoint_of("profiler", client.status())
    return asyncio.run(_list(endpoint))


async def _list(endpoint: str) -> list[Profile]:
    async with calling(endpoint, profiler_pb2_grpc.ProfilerServiceStub) as profiler:
        response = await profiler.ListProfiles(profiler_pb2.ListProfilesRequest(), timeout=_TIMEOUT_S)
    return [from_pb(profile, Profile) for profile in response.profiles]
