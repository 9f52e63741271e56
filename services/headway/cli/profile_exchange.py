"""`headway profile import` and `export`: exchanges profiles that others made, through the profiler."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Protocol, TypeVar

import typer
from rich.console import Console

from headway.cli.options import AsJson, StateDir
from headway.cli.profile_view import summary_table
from headway.cli.profiler_link import profiler_link
from headway.core.catalogue import built_in_catalogue
from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.core.profile_summary import ProfileSummary
from headway.core.slice_profile import SliceProfile
from headway.core.stage_profile import StageProfile
from headway.rpc.convert import from_pb
from headway.v1 import profiler_pb2, profiler_pb2_grpc

_TIMEOUT_S = 60.0
_MAX_FILE_BYTES = 60 * 1024**2


class _Named(Protocol):
    @property
    def profile_id(self) -> str: ...


P = TypeVar("P", bound=_Named)


def _device_names(incomplete: str) -> list[str]:
    return [name for name in built_in_catalogue().devices if name.startswith(incomplete)]


def import_file(
    file: Annotated[Path, typer.Argument(help="AlpaServe's stage latencies or TeraPipe's tables, plain or gzip.")],
    *,
    hardware: Annotated[
        str,
        typer.Option(
            help="What the figures are of: a device of the catalogue, which lists them.", autocompletion=_device_names
        ),
    ] = "V100-16",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Store profiles that others made, each marked as imported."""
    summaries = asyncio.run(_import(_read(file), hardware=hardware, state_dir=state_dir))
    if as_json:
        typer.echo(json.dumps(to_document(summaries), indent=2))
        return
    console = Console()
    console.print(summary_table(summaries))
    console.print(f"Imported {len(summaries)} profiles from {file}.", highlight=False)


def export_profiles(
    profile_ids: Annotated[list[str], typer.Argument(help="Their ids, or how the ids begin; all of one kind.")],
    *,
    output: Annotated[Path | None, typer.Option(help="A file; standard output without it.", dir_okay=False)] = None,
    state_dir: StateDir = None,
) -> None:
    """Write imported profiles in the form that they came in."""
    content = asyncio.run(_export(profile_ids, state_dir))
    if output is None:
        typer.echo(content.decode())
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise InvalidArgumentError(f"{output} cannot be written: {error}.", hint="Name another --output.") from error


async def get_imported(profile_id: str, state_dir: Path | None) -> StageProfile | SliceProfile:
    async with _profiler(state_dir) as profiler:
        return await _get(profile_id, profiler)


async def imported_stages(
    models: Collection[str], devices: Collection[str], state_dir: Path | None
) -> list[StageProfile]:
    """Imported stage profiles of these models on these devices of the catalogue."""
    async with _profiler(state_dir) as profiler:
        found = [
            await _get(summary.profile_id, profiler)
            for summary in await _list(profiler)
            if summary.model in models and summary.hardware in devices
        ]
    return [profile for profile in found if isinstance(profile, StageProfile)]


def find_by_prefix(profiles: Sequence[P], prefix: str) -> P:
    """The summary whose id begins so; NotFoundError unless there is exactly one."""
    found = [profile for profile in profiles if profile.profile_id.startswith(prefix)]
    if len(found) != 1:
        raise NotFoundError(
            f"{len(found) or 'No'} profiles begin with {prefix}.", hint="`headway profile list` shows their ids."
        )
    return found[0]


def _read(file: Path) -> bytes:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"{file} cannot be read: {error}.", hint="Name a file that exists.") from error
    if len(content) > _MAX_FILE_BYTES:
        raise InvalidArgumentError(
            f"{file} is larger than {_MAX_FILE_BYTES // 1024**2} MiB.",
            hint="Compress it by gzip, or import it in parts.",
        )
    return content


async def _import(content: bytes, *, hardware: str, state_dir: Path | None) -> list[ProfileSummary]:
    request = profiler_pb2.ImportProfilesRequest(content=content, hardware=hardware)
    async with _profiler(state_dir) as profiler:
        response = await profiler.ImportProfiles(request, timeout=_TIMEOUT_S)
    return [from_pb(summary, ProfileSummary) for summary in response.profiles]


async def _export(prefixes: Sequence[str], state_dir: Path | None) -> bytes:
    async with _profiler(state_dir) as profiler:
        known = await _list(profiler)
        names = [find_by_prefix(known, prefix).profile_id for prefix in prefixes]
        request = profiler_pb2.ExportProfilesRequest(profile_ids=names)
        return bytes((await profiler.ExportProfiles(request, timeout=_TIMEOUT_S)).content)


async def _list(profiler: "profiler_pb2_grpc.ProfilerServiceAsyncStub") -> list[ProfileSummary]:
    response = await profiler.ListImported(profiler_pb2.ListImportedRequest(), timeout=_TIMEOUT_S)
    return [from_pb(summary, ProfileSummary) for summary in response.profiles]


async def _get(profile_id: str, profiler: "profiler_pb2_grpc.ProfilerServiceAsyncStub") -> StageProfile | SliceProfile:
    request = profiler_pb2.GetImportedRequest(profile_id=profile_id)
    response = await profiler.GetImported(request, timeout=_TIMEOUT_S)
    if response.HasField("stages"):
        return from_pb(response.stages, StageProfile)
    return from_pb(response.slices, SliceProfile)


@asynccontextmanager
async def _profiler(state_dir: Path | None) -> "AsyncIterator[profiler_pb2_grpc.ProfilerServiceAsyncStub]":
    async with profiler_link(state_dir) as link, link.stub() as profiler:
        yield profiler
