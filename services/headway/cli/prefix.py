"""The command `headway prefix`."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from headway.cli.options import ApiKey, AsJson, StateDir
from headway.cli.running import calling_kvcache
from headway.client import Client, Prompt
from headway.client.convert import only_model
from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError
from headway.core.kv import PinnedPrefix
from headway.rpc.convert import from_pb
from headway.v1 import kvcache_pb2, kvcache_pb2_grpc

_Calling: TypeAlias = "AbstractAsyncContextManager[kvcache_pb2_grpc.KvCacheServiceAsyncStub]"

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Keep prefixes resident in the KV cache.")

_TIMEOUT_S = 5.0
_PIN_TIMEOUT_S = 150.0


@app.command()
def pin(
    *,
    file: Annotated[Path, typer.Option(help="Text that prompts begin with.", exists=True, dir_okay=False)],
    model: Annotated[str | None, typer.Option(help="Name of the model; needed where several are served.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the prefix. Default: the file's.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="The text is the system message of chats.")] = False,
    state_dir: StateDir = None,
    api_key: ApiKey = None,
) -> None:
    """Keep a prefix resident on every worker of a model; whole blocks of it are shared by all prompts."""
    text = _read(file)
    prompt: Prompt = [{"role": "system", "content": text}] if chat else text
    with Client(state_dir=state_dir, api_key=api_key, timeout_s=_PIN_TIMEOUT_S) as client:
        model = model or only_model(client.models())
        token_ids = client.tokenize(prompt, model=model)
    request = kvcache_pb2.PinPrefixRequest(name=name or file.stem, model=model, token_ids=token_ids)
    _report(asyncio.run(_pin(calling_kvcache(state_dir, api_key=api_key), request)))


@app.command(name="list")
def list_prefixes(*, as_json: AsJson = False, state_dir: StateDir = None, api_key: ApiKey = None) -> None:
    """Show the pinned prefixes and where they are resident."""
    prefixes = asyncio.run(_list(calling_kvcache(state_dir, api_key=api_key)))
    if as_json:
        typer.echo(json.dumps(to_document(prefixes), indent=2))
        return
    table = Table("name", "model", "tokens", "resident", box=box.SIMPLE_HEAD, header_style="bold cyan", pad_edge=False)
    for prefix in prefixes:
        table.add_row(prefix.name, prefix.model, str(prefix.num_tokens), _residence(prefix))
    Console().print(table)


@app.command()
def unpin(
    name: Annotated[str, typer.Argument(help="Name of the prefix.")],
    *,
    state_dir: StateDir = None,
    api_key: ApiKey = None,
) -> None:
    """Let a prefix go like any other content of the cache."""
    asyncio.run(_unpin(calling_kvcache(state_dir, api_key=api_key), name))
    typer.echo(f"{name} is not pinned any more.")


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{file} is no text in UTF-8: {error}.", field="--file") from None


def _report(prefix: PinnedPrefix) -> None:
    typer.echo(f"{prefix.name}: {prefix.num_tokens} tokens of {prefix.model}, {_residence(prefix)}")


def _residence(prefix: PinnedPrefix) -> str:
    """Says where the prefix is resident, worker by worker."""
    places = [
        f"{holder.num_blocks} blocks on {holder.worker_id}" + (f" ({holder.fault})" if holder.fault else "")
        for holder in prefix.holders
    ]
    return "; ".join(places) or "on no worker yet"


async def _pin(calling: _Calling, request: kvcache_pb2.PinPrefixRequest) -> PinnedPrefix:
    async with calling as kvcache:
        response = await kvcache.PinPrefix(request, timeout=_PIN_TIMEOUT_S)
    return from_pb(response.prefix, PinnedPrefix)


async def _list(calling: _Calling) -> list[PinnedPrefix]:
    async with calling as kvcache:
        response = await kvcache.ListPrefixes(kvcache_pb2.ListPrefixesRequest(), timeout=_TIMEOUT_S)
    return [from_pb(prefix, PinnedPrefix) for prefix in response.prefixes]


async def _unpin(calling: _Calling, name: str) -> None:
    async with calling as kvcache:
        await kvcache.UnpinPrefix(kvcache_pb2.UnpinPrefixRequest(name=name), timeout=_TIMEOUT_S)
