"""The command `headway kv`."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from headway.cli.kv_view import move_lines, request_view, usage_view
from headway.cli.options import ApiKey, AsJson, StateDir
from headway.cli.running import calling_kvcache
from headway.core.codec import to_document
from headway.core.errors import UnavailableError
from headway.core.kv import KvUsage, RequestUsage
from headway.core.move import RequestMove
from headway.rpc.convert import from_pb
from headway.v1 import kvcache_pb2, kvcache_pb2_grpc

_Calling: TypeAlias = "AbstractAsyncContextManager[kvcache_pb2_grpc.KvCacheServiceAsyncStub]"

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Show what the KV cache is used for.")

_TIMEOUT_S = 5.0
_MOVE_TIMEOUT_S = 70.0
_REFRESH_EVERY_S = 1.0
_DERIVED = ("num_blocks", "num_host_blocks", "num_saved_blocks", "waste", "hit_rate")
_ANSWER_PREFIXES = ("cmpl-", "chatcmpl-")


@app.command()
def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Show it once, not every second until Ctrl-C.")] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    api_key: ApiKey = None,
) -> None:
    """Show blocks by state, sharing, prefix hits, waste and preemptions of every worker."""

    def look() -> list[KvUsage]:
        return asyncio.run(_usages(calling_kvcache(state_dir, api_key=api_key)))

    if as_json:
        typer.echo(json.dumps([_document(usage) for usage in look()], indent=2))
    elif once:
        Console().print(usage_view(look()))
    else:
        _watch(look)


@app.command()
def show(
    request: Annotated[str, typer.Argument(help="Id of a running request, as its answer or a log line has it.")],
    *,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    api_key: ApiKey = None,
) -> None:
    """Show a running request's sequences, their blocks, and who shares them."""
    parts = asyncio.run(_describe(calling_kvcache(state_dir, api_key=api_key), _request_id(request)))
    if as_json:
        typer.echo(json.dumps(to_document(parts), indent=2))
    else:
        Console().print(request_view(parts))


@app.command()
def move(
    request: Annotated[str, typer.Argument(help="Id of a running request, as its answer or a log line has it.")],
    *,
    to: Annotated[str, typer.Option(help="Worker on which it is to go on, e.g. worker-1.")],
    as_json: AsJson = False,
    state_dir: StateDir = None,
    api_key: ApiKey = None,
) -> None:
    """Move a running request to another worker, with its blocks; its stream goes on."""
    moves = asyncio.run(_move(calling_kvcache(state_dir, api_key=api_key), _request_id(request), to))
    if as_json:
        typer.echo(json.dumps(to_document(moves), indent=2))
    else:
        typer.echo("\n".join(move_lines(moves, worker_id=to)))


def _watch(look: Callable[[], list[KvUsage]]) -> None:
    with Live(usage_view(look()), auto_refresh=False) as live:
        while True:
            time.sleep(_REFRESH_EVERY_S)
            try:
                live.update(usage_view(look()), refresh=True)
            except UnavailableError as error:
                live.update(Text(str(error), style="red"), refresh=True)


def _request_id(given: str) -> str:
    """Strips the prefix that ids of OpenAI answers have and requests do not."""
    for prefix in _ANSWER_PREFIXES:
        given = given.removeprefix(prefix)
    return given


def _document(usage: KvUsage) -> dict[str, Any]:
    return {**to_document(usage), **{name: getattr(usage, name) for name in _DERIVED}}


async def _usages(calling: _Calling) -> list[KvUsage]:
    async with calling as kvcache:
        response = await kvcache.GetUsage(kvcache_pb2.GetUsageRequest(), timeout=_TIMEOUT_S)
    return [from_pb(worker, KvUsage) for worker in response.workers]


async def _describe(calling: _Calling, request_id: str) -> list[RequestUsage]:
    request = kvcache_pb2.DescribeRequestRequest(request_id=request_id)
    async with calling as kvcache:
        response = await kvcache.DescribeRequest(request, timeout=_TIMEOUT_S)
    return [from_pb(part, RequestUsage) for part in response.parts]


async def _move(calling: _Calling, request_id: str, worker_id: str) -> list[RequestMove]:
    request = kvcache_pb2.MoveRequestRequest(request_id=request_id, worker_id=worker_id)
    async with calling as kvcache:
        response = await kvcache.MoveRequest(request, timeout=_MOVE_TIMEOUT_S)
    return [from_pb(move, RequestMove) for move in response.moves]
