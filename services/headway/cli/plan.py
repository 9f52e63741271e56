"""`headway plan`"""

import asyncio
import json
from typing import Annotated

import typer
import yaml
from rich.console import Console

from headway.cli.calls import calling
from headway.cli.options import ApiKey, AsJson, Endpoint, StateDir
from headway.cli.plan_view import plan_view
from headway.cli.running import endpoint_of
from headway.client import Client, ClusterStatus
from headway.core.codec import to_document
from headway.core.errors import NotFoundError
from headway.core.plan import ServingPlan
from headway.rpc.convert import to_pb
from headway.v1 import planner_pb2, planner_pb2_grpc

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Show or explain the plan in use.")

_TIMEOUT_S = 10.0


@app.command()
def show(
    *,
    state_dir: StateDir = None,
    endpoint: Endpoint = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print YAML.")] = False,
) -> None:
    """Show the plan in use."""
    with Client(endpoint, api_key=api_key, state_dir=state_dir) as client:
        plan = _plan_in(client.status())
    if as_json:
        typer.echo(json.dumps(to_document(plan), indent=2))
    elif as_yaml:
        typer.echo(yaml.safe_dump(to_document(plan), sort_keys=False), nl=False)
    else:
        Console().print(plan_view(plan))


@app.command()
def explain(*, state_dir: StateDir = None) -> None:
    """Say why the plan is as it is."""
    with Client(state_dir=state_dir) as client:
        status = client.status()
    for sentence in asyncio.run(_explain(_plan_in(status), endpoint=endpoint_of("planner", status))):
        typer.echo(f"- {sentence}")


def _plan_in(status: ClusterStatus) -> ServingPlan:
    if status.plan is None or not status.plan.plan_id:
        raise NotFoundError("No plan is in use yet.", hint="`headway status` shows what is being waited for.")
    return status.plan


async def _explain(plan: ServingPlan, *, endpoint: str) -> list[str]:
    request = planner_pb2.ExplainPlanRequest(plan=to_pb(plan, planner_pb2.ServingPlan))
    async with calling(endpoint, planner_pb2_grpc.PlannerServiceStub) as planner:
        return list((await planner.ExplainPlan(request, timeout=_TIMEOUT_S)).sentences)
