"""The command `headway plan`."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console, RenderableType

from headway.cli.backends.command import plan_backends
from headway.cli.calls import calling
from headway.cli.figure_file import check_figure_path
from headway.cli.options import ApiKey, AsJson, CatalogueFile, Endpoint, StateDir
from headway.cli.placement.explain import explain_placement
from headway.cli.placement.frontier import frontier
from headway.cli.placement.serve import serve
from headway.cli.placement.view import placement_view
from headway.cli.plan_file import read_plan
from headway.cli.plan_view import plan_view
from headway.cli.running import endpoint_of
from headway.cli.schedule.command import app as schedule
from headway.cli.search.jobs import app as jobs
from headway.cli.search.planner_link import planner_link
from headway.cli.training.compare import compare
from headway.cli.training.explain import explain_training
from headway.cli.training.figure import draw_training_plan
from headway.cli.training.train import train
from headway.cli.training.view import training_view
from headway.client import Client, ClusterStatus
from headway.client.access import Access, find_access
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.core.plan.document import Plan, to_plan_document
from headway.core.plan.placement import PlacementPlan
from headway.core.plan.serving import ServingPlan
from headway.core.plan.training import TrainingPlan
from headway.rpc.convert import to_pb
from headway.v1 import planner_pb2, planner_pb2_grpc

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Plan serving and training; show or explain the plan in use; follow searches.",
)

app.command()(serve)
app.command()(frontier)
app.command()(train)
app.command()(compare)
app.command("backends")(plan_backends)
app.add_typer(schedule, name="schedule")
app.add_typer(jobs, name="jobs")

_TIMEOUT_S = 10.0


@app.command()
def show(
    file: Annotated[
        Path | None,
        typer.Argument(help="A file that `--out` of a `headway plan` command wrote. Default: the plan in use."),
    ] = None,
    *,
    state_dir: StateDir = None,
    endpoint: Endpoint = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print YAML.")] = False,
    figure: Annotated[
        Path | None,
        typer.Option(help="Draw a training plan's stages and memory: .svg, .png, .pdf or .html.", dir_okay=False),
    ] = None,
) -> None:
    """Show the plan in use, or the plan of a file."""
    if figure is not None:
        check_figure_path(figure)
    if file is not None:
        plan = read_plan(file)
    else:
        with Client(endpoint, api_key=api_key, state_dir=state_dir) as client:
            plan = _plan_in(client.status())
    if as_json:
        typer.echo(json.dumps(to_plan_document(plan), indent=2))
    elif as_yaml:
        typer.echo(yaml.safe_dump(to_plan_document(plan), sort_keys=False), nl=False)
    else:
        Console().print(_view(plan), highlight=False)
    if figure is not None:
        _draw(plan, figure)


@app.command()
def explain(
    file: Annotated[
        Path | None,
        typer.Argument(help="A file that `--out` of a `headway plan` command wrote. Default: the plan in use."),
    ] = None,
    *,
    instead: Annotated[
        str | None,
        typer.Option(
            help='Try another placement on the same requests: "groups=8x1" (stages x devices of each), '
            '"groups=4x2,2*2x2", "models=chat@0,1;code@2", or both.',
        ),
    ] = None,
    state_dir: StateDir = None,
    catalogue: CatalogueFile = None,
    as_json: AsJson = False,
) -> None:
    """Say why a plan is as it is, and what another one would have given."""
    if file is None:
        _refuse(instead)
        _tell(_explain_live(state_dir), as_json=as_json)
        return
    match read_plan(file):
        case PlacementPlan() as plan:
            explain_placement(plan, file, instead=instead, catalogue=catalogue, state_dir=state_dir, as_json=as_json)
        case TrainingPlan() as plan:
            _refuse(instead)
            explain_training(plan, as_json=as_json)
        case ServingPlan() as plan:
            _refuse(instead)
            _tell(asyncio.run(_explain_stored(plan, catalogue, state_dir)), as_json=as_json)


def _refuse(instead: str | None) -> None:
    if instead is not None:
        raise InvalidArgumentError(
            "There is no file of a placement to try another one for.",
            hint="Name one that `headway plan serve --out` wrote.",
        )


def _tell(sentences: Sequence[str], *, as_json: bool) -> None:
    typer.echo(json.dumps(sentences, indent=2) if as_json else "\n".join(f"- {sentence}" for sentence in sentences))


def _draw(plan: Plan, figure: Path) -> None:
    if not isinstance(plan, TrainingPlan):
        raise InvalidArgumentError(
            f"{plan.plan_id} is no training plan, and others have no figure.",
            hint="Name a file that `headway plan train --out` wrote.",
            field="figure",
        )
    draw_training_plan(plan, figure)


def _view(plan: Plan) -> RenderableType:
    match plan:
        case ServingPlan():
            return plan_view(plan)
        case PlacementPlan():
            return placement_view(plan)
        case TrainingPlan():
            return training_view(plan)


def _plan_in(status: ClusterStatus) -> ServingPlan:
    if status.plan is None or not status.plan.plan_id:
        raise NotFoundError("No plan is in use yet.", hint="`headway status` shows what is being waited for.")
    return status.plan


def _explain_live(state_dir: Path | None) -> list[str]:
    """What the running stack's planner says of the plan in use."""
    with Client(state_dir=state_dir) as client:
        status = client.status()
    explaining = _explain(_plan_in(status), endpoint=endpoint_of("planner", status), access=find_access(state_dir))
    return asyncio.run(explaining)


async def _explain(plan: ServingPlan, *, endpoint: str, access: Access) -> list[str]:
    request = planner_pb2.ExplainPlanRequest(plan=to_pb(plan, planner_pb2.ServingPlan))
    async with calling(endpoint, planner_pb2_grpc.PlannerServiceStub, access=access) as planner:
        return list((await planner.ExplainPlan(request, timeout=_TIMEOUT_S)).sentences)


async def _explain_stored(plan: ServingPlan, catalogue: Path | None, state_dir: Path | None) -> list[str]:
    """What a planner says; it needs no stack."""
    request = planner_pb2.ExplainPlanRequest(plan=to_pb(plan, planner_pb2.ServingPlan))
    async with planner_link(state_dir, catalogue=catalogue) as planner, planner.stub() as stub:
        return list((await stub.ExplainPlan(request)).sentences)
