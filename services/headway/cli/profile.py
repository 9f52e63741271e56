"""The command `headway profile`."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from headway.cli.hardware_view import hardware_table, hardware_view
from headway.cli.model_profile_view import model_profile_document, model_profile_view, model_summary_table
from headway.cli.options import AsJson, StateDir
from headway.cli.profile_catalogue import show_catalogue
from headway.cli.profile_exchange import export_profiles, find_by_prefix, get_imported, import_file
from headway.cli.profile_hardware import profile_hardware
from headway.cli.profile_model import profile_model
from headway.cli.profile_view import imported_view, summary_table
from headway.cli.profiler_link import ProfilerLink, profiler_link
from headway.cli.time_text import local_time
from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError
from headway.core.hardware.profile import HardwareProfile, HardwareSummary
from headway.core.model_profile import ModelProfile, ModelProfileSummary
from headway.core.profile import Profile
from headway.core.profile_summary import ProfileSummary
from headway.core.units import format_duration
from headway.rpc.convert import from_pb
from headway.v1 import profiler_pb2

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Measure hardware and models, and show what was measured. Also: known hardware, profiles that others made.",
)
app.command("model")(profile_model)
app.command("hardware")(profile_hardware)
app.command("catalogue")(show_catalogue)
app.command("import")(import_file)
app.command("export")(export_profiles)

_TIMEOUT_S = 10.0


@app.command("list")
def list_profiles(*, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List the profiles that are stored: of workers' steps, of models, of hardware, and those that were imported."""
    profiles, models, imported, hardware_profiles = asyncio.run(_list(state_dir))
    if as_json:
        typer.echo(json.dumps(to_document([*profiles, *models, *imported, *hardware_profiles]), indent=2))
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
            local_time(profile.created_at_s),
        )
    Console().print(table)
    if models:
        Console().print(model_summary_table(models))
    if imported:
        Console().print(summary_table(imported))
    if hardware_profiles:
        Console().print(hardware_table(hardware_profiles))


@app.command()
def show(
    profile_id: Annotated[str, typer.Argument(help="Its id, or how the id begins.")],
    *,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show what a profile measured: steps beside the latency model fitted to them, a model's operators, hardware."""
    known = [each for kind in asyncio.run(_list(state_dir)) for each in kind]
    profile = find_by_prefix(known, profile_id)
    if isinstance(profile, HardwareSummary):
        hardware = asyncio.run(_get_hardware(profile.profile_id, state_dir))
        if as_json:
            typer.echo(json.dumps(to_document(hardware), indent=2))
        else:
            Console().print(hardware_view(hardware), highlight=False)
        return
    if isinstance(profile, ModelProfileSummary):
        model = asyncio.run(_get_model(profile.profile_id, state_dir))
        if as_json:
            typer.echo(json.dumps(model_profile_document(model), indent=2))
        else:
            Console().print(model_profile_view(model, num_operators=20), highlight=False)
        return
    if isinstance(profile, ProfileSummary):
        imported = asyncio.run(get_imported(profile.profile_id, state_dir))
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


@app.command()
def forget(
    profile_ids: Annotated[list[str] | None, typer.Argument(help="Their ids, or how the ids begin.")] = None,
    *,
    stale: Annotated[
        bool, typer.Option("--stale", help="All that no running worker could have measured, operators' times too.")
    ] = False,
    state_dir: StateDir = None,
) -> None:
    """Remove profiles. Times of operators stay, unless they are stale."""
    if not profile_ids and not stale:
        raise InvalidArgumentError("Nothing was named.", hint="Give ids that `headway profile list` shows, or --stale.")
    num_profiles, num_measurements = asyncio.run(_forget(profile_ids or [], state_dir, stale=stale))
    typer.echo(f"{num_profiles} profiles and {num_measurements} measurements removed.")


_Lists = tuple[list[Profile], list[ModelProfileSummary], list[ProfileSummary], list[HardwareSummary]]


async def _list(state_dir: Path | None) -> _Lists:
    async with profiler_link(state_dir) as link:
        return await _list_at(link)


async def _list_at(link: ProfilerLink) -> _Lists:
    async with link.stub() as profiler:
        steps = await profiler.ListProfiles(profiler_pb2.ListProfilesRequest(), timeout=_TIMEOUT_S)
        models = await profiler.ListModelProfiles(profiler_pb2.ListModelProfilesRequest(), timeout=_TIMEOUT_S)
        imported = await profiler.ListImported(profiler_pb2.ListImportedRequest(), timeout=_TIMEOUT_S)
        hardware = await profiler.ListHardware(profiler_pb2.ListHardwareRequest(), timeout=_TIMEOUT_S)
    return (
        [from_pb(profile, Profile) for profile in steps.profiles],
        [from_pb(profile, ModelProfileSummary) for profile in models.profiles],
        [from_pb(profile, ProfileSummary) for profile in imported.profiles],
        [from_pb(profile, HardwareSummary) for profile in hardware.profiles],
    )


async def _get_model(profile_id: str, state_dir: Path | None) -> ModelProfile:
    request = profiler_pb2.GetModelProfileRequest(profile_id=profile_id)
    async with profiler_link(state_dir) as link, link.stub() as profiler:
        return from_pb((await profiler.GetModelProfile(request, timeout=_TIMEOUT_S)).profile, ModelProfile)


async def _get_hardware(profile_id: str, state_dir: Path | None) -> HardwareProfile:
    request = profiler_pb2.GetHardwareRequest(profile_id=profile_id)
    async with profiler_link(state_dir) as link, link.stub() as profiler:
        return from_pb((await profiler.GetHardware(request, timeout=_TIMEOUT_S)).profile, HardwareProfile)


async def _forget(prefixes: list[str], state_dir: Path | None, *, stale: bool) -> tuple[int, int]:
    async with profiler_link(state_dir) as link:
        known = [each for kind in await _list_at(link) for each in kind]
        async with link.stub() as profiler:
            request = profiler_pb2.ForgetProfilesRequest(
                profile_ids=[find_by_prefix(known, prefix).profile_id for prefix in prefixes], stale=stale
            )
            response = await profiler.ForgetProfiles(request, timeout=_TIMEOUT_S)
    return response.num_profiles, response.num_measurements
