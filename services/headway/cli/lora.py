"""The command `headway lora`."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from headway.checkpoint.adapter import read_adapter
from headway.cli.calls import calling_controller
from headway.cli.options import AsJson, StateDir
from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError
from headway.core.plan.serving import ServingPlan
from headway.core.served_adapters import adapters_of, with_adapter, without_adapter
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import controller_pb2, planner_pb2

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Serve LoRA adapters as models, on vllm.")

_TIMEOUT_S = 30.0


@app.command()
def load(
    adapter: Annotated[
        str, typer.Argument(metavar="DIR|NAME=DIR", help="Directory of a LoRA adapter, as PEFT saves it.")
    ],
    *,
    model: Annotated[
        str | None, typer.Option(help="The model that it changes; needed where several are served.")
    ] = None,
    state_dir: StateDir = None,
) -> None:
    """Serve an adapter under its name, beside its model. Workers load it with its first request."""
    name, directory = _split(adapter)
    read = read_adapter(name, directory)
    plan = asyncio.run(_plan(state_dir))
    base = model or _only_model(plan)
    asyncio.run(_apply(plan, with_adapter(plan, base, read), state_dir))
    typer.echo(f"{name} is served: {base} with {directory}.")


@app.command()
def unload(
    name: Annotated[str, typer.Argument(help="Name of the adapter.")],
    *,
    state_dir: StateDir = None,
) -> None:
    """Serve an adapter no more; what it has begun goes on to its end."""
    plan = asyncio.run(_plan(state_dir))
    asyncio.run(_apply(plan, without_adapter(plan, name), state_dir))
    typer.echo(f"{name} is not served any more.")


@app.command(name="list")
def list_adapters(*, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Show the adapters that are served."""
    served = adapters_of(asyncio.run(_plan(state_dir)))
    if as_json:
        typer.echo(json.dumps(to_document(served), indent=2))
        return
    table = Table("name", "model", "directory", box=box.SIMPLE_HEAD, header_style="bold cyan", pad_edge=False)
    for each in served:
        table.add_row(each.adapter.name, each.model, each.adapter.directory)
    Console().print(table)


def _only_model(plan: ServingPlan) -> str:
    if len(plan.models) > 1:
        names = ", ".join(model.name for model in plan.models)
        raise InvalidArgumentError("Several models are served.", hint=f"Name one of {names}.", field="--model")
    return plan.models[0].name


def _split(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not equals or Path(text).is_dir():
        directory = Path(text).expanduser().resolve()
        return directory.name, directory
    if not name.strip():
        raise InvalidArgumentError(f"{text} has no name before the '='.", field="adapter")
    return name, Path(path).expanduser().resolve()


async def _plan(state_dir: Path | None) -> ServingPlan:
    async with calling_controller(state_dir) as stub:
        response = await stub.GetPlan(controller_pb2.GetPlanRequest(), timeout=_TIMEOUT_S)
    return from_pb(response.plan, ServingPlan)


async def _apply(before: ServingPlan, after: ServingPlan, state_dir: Path | None) -> None:
    """Nothing is loaded or drained for it: gateways name the adapter to the workers."""
    request = controller_pb2.ApplyPlanRequest(plan=to_pb(after, planner_pb2.ServingPlan), replaces=before.plan_id)
    async with calling_controller(state_dir) as stub:
        await stub.ApplyPlan(request, timeout=_TIMEOUT_S)
