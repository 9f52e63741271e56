"""The command `headway replan`."""

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from headway.cli.calls import calling_controller
from headway.cli.duration import parse_duration
from headway.cli.options import AsJson, CatalogueFile, StateDir
from headway.cli.placement.cluster import LIVE
from headway.cli.placement.deployments import find_deployments
from headway.cli.placement.options import Profiles, SloScale
from headway.cli.placement.problem import ProblemOptions, make_problem, read_inputs
from headway.cli.placement.stored import applied_placement
from headway.cli.replanning_view import decision_text, status_view
from headway.cli.running import cluster_status
from headway.cli.search.planner_link import planner_link
from headway.cli.search.progress import showing
from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.core.placement_problem import PlacementProblem, ProblemModel
from headway.core.replanning import ReplanningDecision, ReplanningPolicy, ReplanningStatus
from headway.core.slo import Slo
from headway.rpc.convert import from_pb, to_pb
from headway.rpc.convert.search import placement_progress_from_pb
from headway.v1 import replacement_pb2

app = typer.Typer(add_completion=False)

_TIMEOUT_S = 10.0


@app.command()
def replace(
    *,
    every: Annotated[
        Any, typer.Option(parser=parse_duration, metavar="1h", help="How often, from now on. The first time is now.")
    ] = None,
    window: Annotated[
        Any, typer.Option(parser=parse_duration, metavar="24h", help="How much traffic to plan for, until then.")
    ] = "24h",
    models: Annotated[
        Path | None,
        typer.Option(help="YAML, as for `headway plan serve`. Default: those of the placement that is in use."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME=DIR", help="Checkpoint of a model that is not served yet. Repeatable."),
    ] = None,
    min_gain: Annotated[
        float, typer.Option(min=0, max=100, help="Points of attainment that a new placement must gain.")
    ] = 1.0,
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds of a search.")] = 60.0,
    profiles: Profiles = None,
    slo_scale: SloScale = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Now, and not again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --once: only say what it would do.")] = False,
    off: Annotated[bool, typer.Option("--off", help="Don't plan again any more.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Show what came of it, and when it is next.")] = False,
    catalogue: CatalogueFile = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Plan again from recorded traffic, now or every hour.

    What comes out is applied where it gains enough. The new placement and the one in use are simulated on the same
    requests: others of the character of those that were recorded. With --every the controller does so from now on, also
    after a restart.
    """
    wanted = {"--every": every, "--once": once, "--off": off, "--status": status}
    chosen = [name for name, is_on in wanted.items() if is_on]
    if len(chosen) != 1:
        raise InvalidArgumentError(
            f"Give one of --every, --once, --off and --status, not {' and '.join(chosen) or 'none'}."
        )
    if dry_run and not once:
        raise InvalidArgumentError("--dry-run goes with --once.", hint="Give both.")
    if status:
        _show_status(asyncio.run(_status(state_dir)), as_json=as_json)
        return
    if off:
        asyncio.run(_set(None, state_dir))
        typer.echo("Nothing is planned again any more.")
        return
    options = ProblemOptions(
        models=models or Path(),
        cluster=LIVE,
        workload="poisson:rate=1",  # the controller puts the recorded traffic in its place
        profiles=profiles,
        catalogue=catalogue,
        slo_scale=slo_scale,
        state_dir=state_dir,
    )
    problem = asyncio.run(_in_use(state_dir) if models is None else _make(options))
    names = [each.name for each in problem.models]
    live = cluster_status(None, api_key=None, state_dir=state_dir).plan
    how = ReplanningPolicy(
        every_s=every or 0.0,
        window_s=window,
        min_gain=min_gain / 100,
        time_limit_s=time_limit,
        slo_scale=slo_scale,
        models=problem.models,
        profiles=problem.profiles,
        deployments=find_deployments(problem, names, live=live, arguments=model or ()),
    )
    if once:
        _show_decision(asyncio.run(_replace(how, state_dir, dry_run=dry_run)), as_json=as_json)
    else:
        asyncio.run(_set(how, state_dir))
        typer.echo("Planning again from now on; `headway replan --status` shows what comes of it.")


def _show_status(status: ReplanningStatus, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(to_document(status), indent=2))
    else:
        Console().print(status_view(status), highlight=False)


def _show_decision(decision: ReplanningDecision, *, as_json: bool) -> None:
    typer.echo(json.dumps(to_document(decision), indent=2) if as_json else decision_text(decision))


async def _in_use(state_dir: Path | None) -> PlacementProblem:
    """The placement problem in use, with the objectives that its models have now."""
    try:
        problem = (await applied_placement("latest", state_dir)).problem
    except NotFoundError as error:
        raise NotFoundError(
            "No placement is in use that says which models to place.",
            hint="Name them with --models models.yaml, or `headway apply` a placement first.",
        ) from error
    models = tuple(_with_slo(model, problem.slo(model)) for model in problem.models)
    return dataclasses.replace(problem, models=models)


def _with_slo(model: ProblemModel, slo: Slo) -> ProblemModel:
    return dataclasses.replace(model, slo_s=slo.e2e_s, ttft_s=slo.ttft_s, tpot_s=slo.tpot_s)


async def _make(options: ProblemOptions) -> PlacementProblem:
    inputs, console = await read_inputs(options), Console(stderr=True)
    with showing(console) as show:
        async with planner_link(options.state_dir, catalogue=options.catalogue) as planner:
            return await make_problem(inputs, planner, show)


async def _replace(how: ReplanningPolicy, state_dir: Path | None, *, dry_run: bool) -> ReplanningDecision:
    request = replacement_pb2.ReplaceRequest(replacement=to_pb(how, replacement_pb2.Replacement), dry_run=dry_run)
    decision = None
    with showing(Console(stderr=True)) as show:
        async with calling_controller(state_dir) as stub:
            async for response in stub.Replace(request):
                if response.HasField("decision"):
                    decision = from_pb(response.decision, ReplanningDecision)
                else:
                    show(placement_progress_from_pb(response.progress))
    assert decision is not None, "it ends with a decision"
    return decision


async def _set(how: ReplanningPolicy | None, state_dir: Path | None) -> None:
    request = replacement_pb2.SetReplacementRequest(
        replacement=None if how is None else to_pb(how, replacement_pb2.Replacement)
    )
    async with calling_controller(state_dir) as stub:
        await stub.SetReplacement(request, timeout=_TIMEOUT_S)


async def _status(state_dir: Path | None) -> ReplanningStatus:
    async with calling_controller(state_dir) as stub:
        response = await stub.GetReplacement(replacement_pb2.GetReplacementRequest(), timeout=_TIMEOUT_S)
    return from_pb(response, ReplanningStatus)
