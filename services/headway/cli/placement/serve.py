"""The command `headway plan serve`."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headway.cli.options import AsJson, CatalogueFile, StateDir
from headway.cli.placement.interrupt import interruptible, start_then_stop
from headway.cli.placement.options import (
    AnswerOverhead,
    Cluster,
    Duration,
    HeldOut,
    Models,
    Processes,
    Profiles,
    QueuePolicy,
    RayAddress,
    Rules,
    Seed,
    SloScale,
    TimeLimit,
    Workload,
)
from headway.cli.placement.planner_process import planning
from headway.cli.placement.problem import ProblemOptions, file_contents, make_problem, read_inputs
from headway.cli.placement.progress import showing
from headway.cli.placement.stored import store_plan
from headway.cli.placement.view import placement_view
from headway.cli.plan_file import check_plan_path, write_plan
from headway.core.plan.document import to_plan_document
from headway.core.plan.placement import PlacementPlan, PlacementProgress
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import placement_pb2


def serve(
    *,
    models: Models,
    cluster: Cluster,
    workload: Workload,
    held_out: HeldOut = "",
    profiles: Profiles = None,
    slo_scale: SloScale = 5.0,
    duration: Duration = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Where to write the plan: .yaml or .json.", dir_okay=False)] = None,
    time_limit: TimeLimit = None,
    processes: Processes = None,
    ray: RayAddress = "",
    rules: Rules = "serving",
    answer_overhead: AnswerOverhead = None,
    queue_policy: QueuePolicy = None,
    catalogue: CatalogueFile = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Place many models on few devices so that most requests meet their SLOs. Needs no running stack.

    Ctrl-C ends the search with the best placement so far.
    """
    if out is not None:
        check_plan_path(out)
    options = ProblemOptions(
        models=models,
        cluster=cluster,
        workload=workload,
        held_out=held_out,
        profiles=profiles,
        catalogue=catalogue,
        slo_scale=slo_scale,
        duration_s=duration,
        seed=seed,
        rules=rules,
        answer_overhead_s=answer_overhead,
        queue_policy=queue_policy,
        state_dir=state_dir,
    )
    plan = asyncio.run(_plan(options, time_limit_s=time_limit, processes=processes, ray=ray))
    store_plan(plan, state_dir)
    if out is not None:
        write_plan(plan, out)
    if as_json:
        typer.echo(json.dumps(to_plan_document(plan), indent=2))
    else:
        Console().print(placement_view(plan), highlight=False)
        if out is not None:
            typer.echo(f"Written to {out}; `headway plan explain {out} --instead groups=...` tries others.")
        typer.echo(f"`headway apply {out or plan.plan_id}` makes it so on a running stack.")


async def _plan(
    options: ProblemOptions, *, time_limit_s: float | None, processes: int | None, ray: str
) -> PlacementPlan:
    inputs, console = await read_inputs(options), Console(stderr=True)
    with interruptible(console) as stop, showing(console) as show:
        async with planning(options.catalogue) as planner:
            problem = await make_problem(inputs, planner, show)
            start = placement_pb2.PlanPlacementStart(
                problem=to_pb(problem, placement_pb2.PlacementProblem),
                files=file_contents(inputs.files),
                time_limit_s=time_limit_s,
                processes=processes,
                ray=ray,
            )
            requests = start_then_stop(
                placement_pb2.PlanPlacementRequest(start=start), placement_pb2.PlanPlacementRequest(stop=True), stop
            )
            plan = None
            async for response in planner.stub.PlanPlacement(requests, metadata=planner.metadata):
                if response.HasField("plan"):
                    plan = from_pb(response.plan, PlacementPlan)
                else:
                    show(from_pb(response.progress, PlacementProgress))
            assert plan is not None, "a search that ends well has a plan"
            return plan
