"""The command `headway key`."""

import asyncio
import json
import time
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from headway.cli.calls import calling_controller
from headway.cli.duration import parse_duration
from headway.cli.options import AsJson, StateDir
from headway.cli.time_text import local_time
from headway.core.api_key import ApiKeyRecord
from headway.v1 import controller_pb2

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Make, list and revoke API keys of a running stack.")

_TIMEOUT_S = 5.0


@app.command()
def create(
    *,
    tenant: Annotated[
        str, typer.Option(help="Whose requests are sent with it. Tenants share what there is fairly.")
    ] = "",
    model: Annotated[
        list[str] | None, typer.Option("--model", help="A model that it opens. Repeatable. Default: all.")
    ] = None,
    rate: Annotated[int | None, typer.Option(min=1, help="Requests in a minute, at each gateway.")] = None,
    expires: Annotated[
        Any, typer.Option(parser=parse_duration, metavar="30d", help="After how long it opens nothing any more.")
    ] = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="It opens what is for operators, too: metrics, documentation, status.")
    ] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Make a key and print it, once: only its hash is kept. From the first one on the gateway asks for keys."""
    request = controller_pb2.CreateApiKeyRequest(
        tenant=tenant, models=model or (), requests_per_minute=rate, lifetime_s=expires, is_admin=admin
    )
    made = asyncio.run(_create(request, state_dir))
    if as_json:
        typer.echo(json.dumps({"secret": made.secret, **_document(made.api_key)}, indent=2))
        return
    typer.echo(made.secret)
    typer.echo(f"That is {made.api_key.key_id}; it is not shown again. `headway key revoke` takes it back.", err=True)


@app.command(name="list")
def list_keys(*, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Show all keys that were made: who has them, what they open, and whether they still do."""
    found = asyncio.run(_list(state_dir))
    if as_json:
        typer.echo(json.dumps([_document(each) for each in found], indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, header_style="bold cyan", pad_edge=False)
    for heading in ("key", "state", "tenant", "models", "a minute", "made", "expires", "for"):
        table.add_column(heading)
    for each in found:
        table.add_row(
            each.key_id,
            _record(each).state(time.time()).value,
            each.tenant or "-",
            ", ".join(each.models) or "all",
            str(each.requests_per_minute) if each.HasField("requests_per_minute") else "any",
            local_time(each.created_at_s),
            local_time(each.expires_at_s) if each.HasField("expires_at_s") else "never",
            "operators" if each.is_admin else "clients",
        )
    Console().print(table)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="As `headway key list` shows it.", metavar="KEY")],
    *,
    state_dir: StateDir = None,
) -> None:
    """Take a key back, for good. Gateways refuse it within two seconds; requests that run go on."""
    revoked = asyncio.run(_revoke(key_id, state_dir))
    typer.echo(f"{revoked.key_id} opens nothing any more.")


def _record(key: controller_pb2.ApiKey) -> ApiKeyRecord:
    """What the key's state follows from."""
    return ApiKeyRecord(
        key_id=key.key_id,
        hashed="",
        created_at_s=key.created_at_s,
        expires_at_s=key.expires_at_s if key.HasField("expires_at_s") else None,
        revoked_at_s=key.revoked_at_s if key.HasField("revoked_at_s") else None,
    )


def _document(key: controller_pb2.ApiKey) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "state": _record(key).state(time.time()).value,
        "tenant": key.tenant,
        "models": list(key.models),
        "requests_per_minute": key.requests_per_minute if key.HasField("requests_per_minute") else None,
        "is_admin": key.is_admin,
        "created_at_s": key.created_at_s,
        "expires_at_s": key.expires_at_s if key.HasField("expires_at_s") else None,
        "revoked_at_s": key.revoked_at_s if key.HasField("revoked_at_s") else None,
    }


async def _create(
    request: controller_pb2.CreateApiKeyRequest, state_dir: StateDir
) -> controller_pb2.CreateApiKeyResponse:
    async with calling_controller(state_dir) as controller:
        return await controller.CreateApiKey(request, timeout=_TIMEOUT_S)


async def _list(state_dir: StateDir) -> list[controller_pb2.ApiKey]:
    async with calling_controller(state_dir) as controller:
        return list((await controller.ListApiKeys(controller_pb2.ListApiKeysRequest(), timeout=_TIMEOUT_S)).api_keys)


async def _revoke(key_id: str, state_dir: StateDir) -> controller_pb2.ApiKey:
    async with calling_controller(state_dir) as controller:
        request = controller_pb2.RevokeApiKeyRequest(key_id=key_id)
        return (await controller.RevokeApiKey(request, timeout=_TIMEOUT_S)).api_key
